"""Settings: defaults as the design has them, ranges, relations, refusals that say what was expected and found."""

from __future__ import annotations

import pytest

from orbit_project import configuration
from orbit_project.configuration import VARIABLES, ConfigurationError, load
from orbit_project.setting_values import Address

SECRET = "s" * 32
PRODUCTION = {"ORBIT_SECRET_KEY": SECRET}

# The table of the design, 5.3.
DEFAULTS = {
    "ORBIT_DATABASE_URL": "sqlite:///var/orbit.sqlite3",
    "ORBIT_SECRET_KEY": None,
    "ORBIT_DEBUG": "0",
    "ORBIT_HTTP_ADDR": "127.0.0.1:8080",
    "ORBIT_ALLOWED_HOSTS": None,
    "ORBIT_TRUSTED_PROXIES": None,
    "ORBIT_WS_ORIGINS": None,
    "ORBIT_NODE_ID": None,
    "ORBIT_NODE_ADDR": None,
    "ORBIT_UPSTREAM_URL": None,
    "ORBIT_UPSTREAM_TOKEN": None,
    "ORBIT_UPSTREAM_TIMEOUT_MS": "10000",
    "ORBIT_NOTIFY_URL": None,
    "ORBIT_CHANNEL_LAYER_URL": None,
    "ORBIT_RESERVATION_MS": "10000",
    "ORBIT_LEASE_MS": "30000",
    "ORBIT_SCAN_CYCLE_MS": "1000",
    "ORBIT_FINISH_GRACE_MS": "5000",
    "ORBIT_MAX_LOSSES": "3",
    "ORBIT_CLAIM_POOL": "4",
    "ORBIT_CLAIMS_PER_CYCLE": "4",
    "ORBIT_CLAIM_BATCH": "32",
    "ORBIT_CLAIM_PENDING": "128",
    "ORBIT_CLAIM_PACING": "work",
    "ORBIT_MAX_CONNECTIONS": "128",
    "ORBIT_HELLO_TIMEOUT_MS": "5000",
    "ORBIT_SILENCE_TIMEOUT_MS": "30000",
    "ORBIT_YIELD_MIN_DELTA": "1",
    "ORBIT_YIELD_DELAY_MS": "100",
    "ORBIT_MAX_YIELDS": "100",
    "ORBIT_STARVATION_ALERT_MS": "600000",
    "ORBIT_API_POOL": "8",
    "ORBIT_CONTROL_POOL": "4",
    "ORBIT_BATCH_BUDGET_MS": "8000",
    "ORBIT_AUTH_FAILURES_PER_MINUTE": "20",
    "ORBIT_RETAIN_TASKS": "30",
    "ORBIT_RETAIN_EVENTS": "30",
    "ORBIT_RETAIN_RECEIPTS": "90",
    "ORBIT_RETAIN_AUDIT": "400",
    "ORBIT_RETAIN_REPORTS": "30",
    "ORBIT_LOG_FORMAT": None,
    "ORBIT_LOG_LEVEL": "INFO",
    "ORBIT_METRICS_TOKEN": None,
    "ORBIT_ACCEPT_RELAXED_DURABILITY": "0",
}

# Lowest and highest accepted number of each; one less and one more are refused.
RANGES = {
    "ORBIT_UPSTREAM_TIMEOUT_MS": (100, 300_000),
    "ORBIT_MAX_LOSSES": (1, 100),
    "ORBIT_CLAIM_POOL": (1, 64),
    "ORBIT_CLAIMS_PER_CYCLE": (1, 1_000),
    "ORBIT_CLAIM_BATCH": (1, 1_000),
    "ORBIT_CLAIM_PENDING": (4, 10_000),  # 1 by itself, but not below the claim pool
    "ORBIT_MAX_CONNECTIONS": (1, 10_000),
    "ORBIT_YIELD_MIN_DELTA": (1, 18),
    "ORBIT_YIELD_DELAY_MS": (0, 60_000),
    "ORBIT_MAX_YIELDS": (1, 1_000_000),
    "ORBIT_STARVATION_ALERT_MS": (1_000, 2_678_400_000),
    "ORBIT_API_POOL": (1, 256),
    "ORBIT_CONTROL_POOL": (1, 64),
    "ORBIT_BATCH_BUDGET_MS": (100, 25_000),
    "ORBIT_AUTH_FAILURES_PER_MINUTE": (1, 100_000),
    "ORBIT_RETAIN_TASKS": (1, 36_500),
    "ORBIT_RETAIN_EVENTS": (1, 36_500),
    "ORBIT_RETAIN_RECEIPTS": (90, 36_500),
    "ORBIT_RETAIN_AUDIT": (1, 36_500),
    "ORBIT_RETAIN_REPORTS": (1, 36_500),
    "ORBIT_SCAN_CYCLE_MS": (10, 9_999),
    "ORBIT_RESERVATION_MS": (1_001, 29_999),
    "ORBIT_LEASE_MS": (10_001, 86_400_000),
    "ORBIT_FINISH_GRACE_MS": (0, 29_999),
    "ORBIT_HELLO_TIMEOUT_MS": (100, 29_999),
    "ORBIT_SILENCE_TIMEOUT_MS": (30_000, 3_600_000),
}


def problems_of(environ: dict[str, str]) -> dict[str, configuration.Problem]:
    with pytest.raises(ConfigurationError) as caught:
        load(environ)
    return {problem.name: problem for problem in caught.value.problems}


def test_every_variable_of_the_design_has_its_default():
    assert {variable.name: variable.default for variable in VARIABLES} == DEFAULTS


def test_every_field_of_the_configuration_has_a_variable():
    attributes = {variable.attribute for variable in VARIABLES} | {"sources"}

    assert attributes == set(configuration.Configuration.__dataclass_fields__)


@pytest.mark.parametrize("name", [v.name for v in VARIABLES if v.kind.expected.startswith("an integer")])
def test_every_number_has_a_tested_range(name):
    assert name in RANGES


@pytest.mark.parametrize("name", RANGES)
def test_numbers_are_accepted_up_to_their_bounds_and_refused_beyond(name):
    low, high = RANGES[name]
    attribute = configuration.BY_NAME[name].attribute
    # The hello time-out's default is larger than nothing here; lower it where the silence time-out is the subject.
    around = PRODUCTION

    for value in (low, high):
        assert getattr(load({**around, name: str(value)}), attribute) == value
    for value in (low - 1, high + 1):
        problems = problems_of({**around, name: str(value)})
        assert problems, f"{name}={value} was accepted"


@pytest.mark.parametrize("text", ["", " 4", "4 ", "+4", "-4", "4.0", "1e3", "1_000", "٤", "four", "0x10", "9" * 13])
def test_a_number_is_plain_decimal_digits(text):
    problem = problems_of({**PRODUCTION, "ORBIT_LEASE_MS": text})["ORBIT_LEASE_MS"]

    assert problem.expected == "an integer from 300 to 86400000 (ms)"
    assert problem.found == repr(text)


@pytest.mark.parametrize("text", ["true", "yes", "on", "2", "", "TRUE"])
def test_a_switch_is_zero_or_one(text):
    assert problems_of({**PRODUCTION, "ORBIT_DEBUG": text})["ORBIT_DEBUG"].expected == "0 or 1"


def test_an_unknown_name_is_refused_with_a_near_one():
    problem = problems_of({**PRODUCTION, "ORBIT_LEESE_MS": "1"})["ORBIT_LEESE_MS"]

    assert problem.expected == "a known name (perhaps ORBIT_LEASE_MS?)"
    assert problem.found == "an unknown setting"


@pytest.mark.parametrize(
    "name",
    ["ORBIT_URL", "ORBIT_TOKEN", "ORBIT_CREDENTIALS_FILE", "ORBIT_TEST_X", "ORBIT_EXAMPLE_X", "ORBIT_BENCH_X", "HOME"],
)
def test_variables_of_clients_tests_and_others_are_ignored(name):
    assert load({**PRODUCTION, name: "anything"}) == load(PRODUCTION)


def test_everything_that_is_wrong_is_told_at_once():
    problems = problems_of({"ORBIT_LEASE_MS": "x", "ORBIT_WHAT": "1", "ORBIT_CLAIM_PACING": "fast"})

    assert set(problems) == {"ORBIT_LEASE_MS", "ORBIT_WHAT", "ORBIT_CLAIM_PACING"}
    assert problems["ORBIT_CLAIM_PACING"].expected == "one of work, literal"


@pytest.mark.parametrize(
    ("environ", "blamed"),
    [
        ({"ORBIT_SCAN_CYCLE_MS": "10000"}, "ORBIT_SCAN_CYCLE_MS"),
        ({"ORBIT_RESERVATION_MS": "30000"}, "ORBIT_RESERVATION_MS"),
        ({"ORBIT_FINISH_GRACE_MS": "30000"}, "ORBIT_FINISH_GRACE_MS"),
        ({"ORBIT_SILENCE_TIMEOUT_MS": "29999"}, "ORBIT_SILENCE_TIMEOUT_MS"),
        ({"ORBIT_HELLO_TIMEOUT_MS": "30000"}, "ORBIT_HELLO_TIMEOUT_MS"),
        ({"ORBIT_CLAIM_POOL": "5", "ORBIT_CLAIM_PENDING": "4"}, "ORBIT_CLAIM_POOL"),
        ({"ORBIT_UPSTREAM_TOKEN": "t"}, "ORBIT_UPSTREAM_TOKEN"),
        ({"ORBIT_DEBUG": "1", "ORBIT_HTTP_ADDR": ":80", "ORBIT_ALLOWED_HOSTS": "x"}, "ORBIT_DEBUG"),
    ],
)
def test_relations_between_settings_are_checked(environ, blamed):
    assert set(problems_of({**PRODUCTION, **environ})) == {blamed}


def test_a_secret_key_is_required_outside_debug():
    assert problems_of({})["ORBIT_SECRET_KEY"].found == "nothing"
    assert problems_of({"ORBIT_SECRET_KEY": ""})["ORBIT_SECRET_KEY"].found == "nothing"
    assert len(load({"ORBIT_DEBUG": "1"}).secret_key) >= 32


@pytest.mark.parametrize("name", ["ORBIT_SECRET_KEY", "ORBIT_METRICS_TOKEN"])
def test_a_wrong_secret_is_not_repeated_in_the_message(name):
    problem = problems_of({**PRODUCTION, name: "hunter2"})[name]

    assert "hunter2" not in str(problem)
    assert problem.found == "7 characters (not shown)"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@/x",
        "mysq://u:hunter2@h/x",
        "mysql://u:hunter2@h/x?bad=1",
        "u:hunter2@h",
        "mysql://u:hunter2@[/x",
    ],
)
def test_a_wrong_database_url_is_shown_without_its_password(url):
    assert "hunter2" not in str(problems_of({**PRODUCTION, "ORBIT_DATABASE_URL": url})["ORBIT_DATABASE_URL"])


def test_hosts_default_to_loopback_names_and_are_required_elsewhere():
    assert load(PRODUCTION).allowed_hosts == ("127.0.0.1", "localhost", "[::1]")
    assert "ORBIT_ALLOWED_HOSTS" in problems_of({**PRODUCTION, "ORBIT_HTTP_ADDR": "0.0.0.0:80"})
    named = load({**PRODUCTION, "ORBIT_HTTP_ADDR": ":80", "ORBIT_ALLOWED_HOSTS": "Orbit.example, 10.0.0.1"})
    assert named.allowed_hosts == ("orbit.example", "10.0.0.1")
    assert named.http_addr == Address("0.0.0.0", 80)


def test_lists_are_parsed_item_by_item():
    read = load(
        {**PRODUCTION, "ORBIT_TRUSTED_PROXIES": "10.0.0.0/8,::1", "ORBIT_WS_ORIGINS": "https://Ops.example:8443"}
    )

    assert [str(network) for network in read.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    assert read.ws_origins == ("https://ops.example:8443",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ORBIT_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("ORBIT_TRUSTED_PROXIES", "proxy.example"),
        ("ORBIT_WS_ORIGINS", "null"),
        ("ORBIT_WS_ORIGINS", "https://ops.example/path"),
        ("ORBIT_ALLOWED_HOSTS", "a,,b"),
        ("ORBIT_ALLOWED_HOSTS", "https://a"),
        ("ORBIT_HTTP_ADDR", "127.0.0.1"),
        ("ORBIT_HTTP_ADDR", "127.0.0.1:65536"),
        ("ORBIT_NODE_ADDR", "[::g]:1"),
        ("ORBIT_UPSTREAM_URL", "ftp://host"),
        ("ORBIT_UPSTREAM_URL", "https://user@host"),
        ("ORBIT_NOTIFY_URL", "/relative"),
        ("ORBIT_CHANNEL_LAYER_URL", "amqp://host"),
        ("ORBIT_NODE_ID", " node"),
        ("ORBIT_NODE_ID", "n" * 65),
        ("ORBIT_NODE_ID", "n\u200bode"),
        ("ORBIT_LOG_LEVEL", "info"),
        ("ORBIT_LOG_FORMAT", "xml"),
        ("ORBIT_METRICS_TOKEN", "fifteen-chars-x"),
        ("ORBIT_SECRET_KEY", "s" * 31),
    ],
)
def test_malformed_values_are_refused(name, text):
    assert name in problems_of({**PRODUCTION, name: text})


def test_an_empty_value_of_an_optional_setting_means_none():
    assert load({**PRODUCTION, "ORBIT_NODE_ADDR": "", "ORBIT_METRICS_TOKEN": ""}).node_addr is None


def test_log_lines_are_for_people_in_debug_and_for_programs_elsewhere():
    assert load({"ORBIT_DEBUG": "1"}).log_format == "console"
    assert load(PRODUCTION).log_format == "json"
    assert load({**PRODUCTION, "ORBIT_LOG_FORMAT": "console"}).log_format == "console"


def test_the_node_id_is_host_name_and_address_within_its_limit(monkeypatch):
    monkeypatch.setattr(configuration.socket, "gethostname", lambda: "h" * 80)

    node_id = load(PRODUCTION).node_id

    assert len(node_id) == 64
    assert node_id.endswith("/127.0.0.1:8080")


def test_binding_elsewhere_derives_again_what_was_derived():
    loaded = load(PRODUCTION)

    moved = loaded.bound_to(Address("127.0.0.1", 9000))

    assert moved.http_addr == Address("127.0.0.1", 9000)
    assert moved.node_id.endswith("/127.0.0.1:9000")
    with pytest.raises(ConfigurationError, match="ORBIT_ALLOWED_HOSTS"):
        loaded.bound_to(Address("0.0.0.0", 9000))
    with pytest.raises(ConfigurationError, match="ORBIT_DEBUG"):
        load({"ORBIT_DEBUG": "1", "ORBIT_ALLOWED_HOSTS": "x"}).bound_to(Address("0.0.0.0", 9000))


def test_binding_elsewhere_keeps_what_was_set_by_name():
    loaded = load({**PRODUCTION, "ORBIT_NODE_ID": "alpha", "ORBIT_ALLOWED_HOSTS": "orbit.example"})

    moved = loaded.bound_to(Address("0.0.0.0", 9000))

    assert (moved.node_id, moved.allowed_hosts) == ("alpha", ("orbit.example",))
