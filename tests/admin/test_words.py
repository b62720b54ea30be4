"""Every own word of the operators' site stands in Simplified Chinese too; the theme's words that it shows as well."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tasks_app.admin.words import own_words
from tests.admin.world import World, pages

ROOT = Path(__file__).resolve().parents[2]
CODE = ("tasks_app/admin", "workers_app/admin.py", "lifecycle_app/admin", "orbit_project/operators_site.py")
TEMPLATES = ("templates", "lifecycle_app/templates")
MARKERS = {"_", "gettext", "gettext_lazy"}
SAME = {"", "Orbit"}
_TRANSLATE = re.compile(r'{%\s*(?:translate|trans)\s+"([^"]+)"')
_BLOCK = re.compile(r"{%\s*blocktrans(?:late)?\b([^%]*)%}(.*?){%\s*endblocktrans(?:late)?\s*%}", re.S)
THEME = ("Light", "Dark", "System", "Filters", "Apply Filters", "Reset filters", "Type to search", "Next", "Previous")


def words_of_code(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKERS and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                found.add(argument.value)
    return found


def words_of_template(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    found = set(_TRANSLATE.findall(text))
    for _, body in _BLOCK.findall(text):
        first = body.split("{% plural %}")[0].replace("%", "%%")
        found.add(re.sub(r"{{\s*(\w+)\s*}}", r"%(\1)s", first))
    return found


def files(places: tuple[str, ...], suffix: str) -> list[Path]:
    found = [path for place in places for path in ((ROOT / place).rglob(f"*{suffix}"))]
    found += [ROOT / place for place in places if place.endswith(suffix)]
    assert found
    return found


def own() -> set[str]:
    words = {word for path in files(CODE, ".py") for word in words_of_code(path)}
    words |= {word for path in files(TEMPLATES, ".html") for word in words_of_template(path)}
    for page in pages():
        words |= own_words(page.model)
    return words - SAME


def untranslated(words: set[str]) -> set[str]:
    with translation.override("zh-hans"):
        return {word for word in words if _in_chinese(word) == word}


def _in_chinese(word: str) -> str:
    single = translation.gettext(word)
    return single if single != word else translation.ngettext(word, word, 1)


def test_many_words_are_looked_at():
    assert len(own()) > 300


def test_every_own_word_is_translated():
    assert not untranslated(own())


def test_models_and_their_columns_are_shown_in_the_readers_language():
    for page in pages():
        english = own_words(page.model)
        with translation.override("zh-hans"):
            assert not english & own_words(page.model), page.model


def test_what_the_theme_says_is_translated():
    assert not untranslated(set(THEME))


def test_the_compiled_catalogue_is_that_of_the_text():
    """The .mo is committed: a fresh machine has no compiler for it."""
    import gettext

    folder = ROOT / "locale/zh_Hans/LC_MESSAGES"
    with (folder / "django.mo").open("rb") as compiled:
        catalogue = gettext.GNUTranslations(compiled)
    text = (folder / "django.po").read_text(encoding="utf-8")
    pairs = re.findall(r'^msgid "(.+)"\nmsgstr "(.+)"$', text, re.M)
    assert len(pairs) > 300
    assert {source for source, wanted in pairs if catalogue.gettext(_plain(source)) != _plain(wanted)} == set()


def _plain(text: str) -> str:
    return text.replace('\\"', '"').replace("\\\\", "\\")


def test_placeholders_are_the_same_in_both_languages():
    text = (ROOT / "locale/zh_Hans/LC_MESSAGES/django.po").read_text(encoding="utf-8")
    for source, wanted in re.findall(r'^msgid "(.+)"\nmsgstr "(.+)"$', text, re.M):
        assert sorted(re.findall(r"%\(\w+\)s", source)) == sorted(re.findall(r"%\(\w+\)s", wanted)), source


@pytest.mark.parametrize(
    ("language", "word"), [("en", "What needs a person now"), ("zh-hans", "现在需要人工处理的事项")]
)
def test_the_start_page_speaks_the_readers_language(world: World, client_of, language: str, word: str):
    assert word in client_of("viewer", language=language).get(reverse("admin:index")).content.decode()


def test_the_language_is_chosen_by_post(database: None):
    client = Client()
    assert client.post(reverse("set_language"), {"language": "zh-hans", "next": "/admin/"}).status_code == 302
    assert client.cookies["django_language"].value == "zh-hans"
