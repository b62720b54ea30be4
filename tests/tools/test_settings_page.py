from tools.settings_page import PAGE, page


def test_the_page_of_settings_is_what_the_settings_say():
    assert PAGE.read_text() == page(), "make settings-page"
