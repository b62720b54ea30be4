"""Every `ORBIT_…` variable: its name, type, default, unit, range and whether it is a secret (design 5.3).

`load(environ)` gives one frozen `Configuration`, or raises `ConfigurationError` with everything that is wrong at once.
Django is not imported here. The rest of the code reads `django.conf.settings.ORBIT` and never `os.environ`.
"""

from __future__ import annotations

import dataclasses
import difflib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orbit_project import setting_values as values
from orbit_project.setting_values import Address, DatabaseUrl, Kind, Network
from tasks_app import limits

PREFIX: Final = "ORBIT_"
# Read by clients, tests, examples and benchmarks, which may share a shell with a server.
FOREIGN_NAMES: Final = frozenset({"ORBIT_URL", "ORBIT_TOKEN", "ORBIT_CREDENTIALS_FILE"})
FOREIGN_PREFIXES: Final = ("ORBIT_TEST_", "ORBIT_EXAMPLE_", "ORBIT_BENCH_")

NODE_ID_LENGTH_MAX: Final = 64
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the environment."""

    name: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}; found {self.found}"


class ConfigurationError(Exception):
    """The environment does not describe a server that may start."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


@dataclass(frozen=True, slots=True)
class Described:
    """One line of `manage.py orbit_settings`; `value` is None where nothing is set, and hidden where it is a secret."""

    name: str
    value: str | None
    source: str
    default: str
    unit: str
    range: str
    secret: bool
    meaning: str


@dataclass(frozen=True)
class Configuration:
    """The settings of one process. Durations carry their unit in the name; None means "not set"."""

    database_url: DatabaseUrl
    accept_relaxed_durability: bool
    secret_key: str
    debug: bool
    http_addr: Address
    allowed_hosts: tuple[str, ...]
    trusted_proxies: tuple[Network, ...]
    ws_origins: tuple[str, ...]
    node_id: str
    node_addr: Address | None
    upstream_url: str | None
    upstream_token: str | None
    upstream_timeout_ms: int
    notify_url: str | None
    channel_layer_url: str | None
    reservation_ms: int
    lease_ms: int
    scan_cycle_ms: int
    finish_grace_ms: int
    max_losses: int
    claim_pool: int
    claims_per_cycle: int
    claim_batch: int
    claim_pending: int
    claim_pacing: str
    max_connections: int
    hello_timeout_ms: int
    silence_timeout_ms: int
    yield_min_delta: int
    yield_delay_ms: int
    max_yields: int
    starvation_alert_ms: int
    api_pool: int
    control_pool: int
    batch_budget_ms: int
    auth_failures_per_minute: int
    retain_tasks_days: int
    retain_events_days: int
    retain_receipts_days: int
    retain_audit_days: int
    retain_reports_days: int
    log_format: str
    log_level: str
    metrics_token: str | None
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def bound_to(self, address: Address) -> Configuration:
        """This configuration for a node told on its command line to listen elsewhere (`--bind`).

        What was derived from the address (node id, allowed hosts) is derived again unless it was set by name.
        Raises ConfigurationError where the new address needs something that was not set.
        """
        moved = dataclasses.replace(self, http_addr=address)
        if self.sources.get("ORBIT_NODE_ID") == "default":
            moved = dataclasses.replace(moved, node_id=default_node_id(address))
        if self.sources.get("ORBIT_ALLOWED_HOSTS") == "default":
            if not address.is_loopback:
                raise ConfigurationError([_hosts_missing(address)])
            moved = dataclasses.replace(moved, allowed_hosts=LOOPBACK_HOSTS)
        _check_relations(moved)
        return moved

    def describe(self) -> list[Described]:
        """Every setting with its value in force. Secrets are never shown, only whether they are set."""
        return [_described(variable, self) for variable in VARIABLES]


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as an operator sees it. `default` is written as it would stand in the environment, None if unset."""

    name: str
    attribute: str
    kind: Kind
    default: str | None
    meaning: str
    unit: str = ""
    secret: bool = False
    default_note: str = ""  # shown instead of a default that depends on other things

    @property
    def default_text(self) -> str:
        return self.default_note or ("none" if self.default is None else self.default)


def _variable(name: str, kind: Kind, default: str | None, meaning: str, **more: Any) -> Variable:
    attribute = more.pop("attribute", name.removeprefix(PREFIX).lower())
    return Variable(name, attribute, kind, default, meaning, **more)


def _ms(name: str, default: int, low: int, high: int, meaning: str) -> Variable:
    return _variable(name, values.integer(low, high), str(default), meaning, unit="ms")


def _count(name: str, default: int, low: int, high: int, meaning: str) -> Variable:
    return _variable(name, values.integer(low, high), str(default), meaning)


def _days(name: str, default: int, low: int, meaning: str) -> Variable:
    attribute = name.removeprefix(PREFIX).lower() + "_days"
    return _variable(name, values.integer(low, 36_500), str(default), meaning, unit="days", attribute=attribute)


HOUR_MS: Final = 3_600_000

VARIABLES: Final[tuple[Variable, ...]] = (
    _variable(
        "ORBIT_DATABASE_URL",
        values.DATABASE_URL,
        "sqlite:///var/orbit.sqlite3",
        "the one database; a relative SQLite path starts at the project's folder",
    ),
    _variable(
        "ORBIT_ACCEPT_RELAXED_DURABILITY",
        values.BOOLEAN,
        "0",
        "1: start on a MySQL or MariaDB server that may lose its last commits in a crash",
    ),
    _variable(
        "ORBIT_SECRET_KEY",
        values.text(32, 512),
        None,
        "signs cursors, sessions and one-time logins; the same on every node",
        secret=True,
        default_note="none; a fixed one in debug",
    ),
    _variable("ORBIT_DEBUG", values.BOOLEAN, "0", "1: development on loopback, never in production"),
    _variable("ORBIT_HTTP_ADDR", values.ADDRESS, "127.0.0.1:8080", "where HTTP and WebSockets are served"),
    _variable(
        "ORBIT_ALLOWED_HOSTS",
        values.HOST_LIST,
        None,
        "the Host names that are answered",
        default_note="loopback names when bound to loopback, else required",
    ),
    _variable(
        "ORBIT_TRUSTED_PROXIES", values.NETWORK_LIST, None, "the proxies whose X-Forwarded-For and -Proto are believed"
    ),
    _variable("ORBIT_WS_ORIGINS", values.ORIGIN_LIST, None, "browser origins that may open WebSockets"),
    _variable(
        "ORBIT_NODE_ID",
        values.printable(NODE_ID_LENGTH_MAX),
        None,
        "this node's name in sessions, intents and logs; unique and stable",
        default_note="host name + bind address",
    ),
    _variable("ORBIT_NODE_ADDR", values.ADDRESS, None, "where storage nodes connect over TCP"),
    _variable("ORBIT_UPSTREAM_URL", values.WEB_URL, None, "the upstream that operations are submitted to"),
    _variable("ORBIT_UPSTREAM_TOKEN", values.text(1, 4096), None, "bearer token for the upstream", secret=True),
    _ms("ORBIT_UPSTREAM_TIMEOUT_MS", 10_000, 100, 300_000, "longest wait for one answer of the upstream"),
    _variable("ORBIT_NOTIFY_URL", values.WEB_URL, None, "the webhook that hears of lifecycle changes"),
    _variable(
        "ORBIT_CHANNEL_LAYER_URL", values.REDIS_URL, None, "optional Redis for hints and live pages; never for truth"
    ),
    _ms("ORBIT_RESERVATION_MS", 10_000, 100, HOUR_MS, "how long an offer stands before it returns"),
    _ms("ORBIT_LEASE_MS", 30_000, 300, 24 * HOUR_MS, "how long a running attempt holds without a renewal"),
    _ms("ORBIT_SCAN_CYCLE_MS", 1_000, 10, 60_000, "the claim scheduler's cycle"),
    _ms("ORBIT_FINISH_GRACE_MS", 5_000, 0, 600_000, "grace for a report past deadline or attempt time-out"),
    _count("ORBIT_MAX_LOSSES", 3, 1, 100, "lost leases after which a safe task fails with WORKER_LOST"),
    _count("ORBIT_CLAIM_POOL", 4, 1, 64, "claims of one node in the database at once"),
    _count("ORBIT_CLAIMS_PER_CYCLE", 4, 1, 1_000, "speculative claims of one connection in one cycle"),
    _count("ORBIT_CLAIM_BATCH", 32, 1, 1_000, "most tasks that one claim takes"),
    _count("ORBIT_CLAIM_PENDING", 128, 1, 10_000, "waiting and running claim requests of one node"),
    _variable(
        "ORBIT_CLAIM_PACING", values.choice("work", "literal"), "work", "literal: every claim counts against the pace"
    ),
    _count("ORBIT_MAX_CONNECTIONS", 128, 1, 10_000, "worker connections of one node"),
    _ms("ORBIT_HELLO_TIMEOUT_MS", 5_000, 100, 60_000, "a new worker connection must say hello within this time"),
    _ms("ORBIT_SILENCE_TIMEOUT_MS", 30_000, 1_000, HOUR_MS, "a worker connection without a sign of life is closed"),
    _count("ORBIT_YIELD_MIN_DELTA", 1, 1, 18, "how much more urgent a task must be for a reservation to give way"),
    _ms("ORBIT_YIELD_DELAY_MS", 100, 0, 60_000, "how long a yielded task is not a candidate"),
    _count("ORBIT_MAX_YIELDS", 100, 1, 1_000_000, "yields after which a task gives way no more"),
    _ms("ORBIT_STARVATION_ALERT_MS", 600_000, 1_000, 31 * 24 * HOUR_MS, "oldest wait of a priority that is reported"),
    _count("ORBIT_API_POOL", 8, 1, 256, "threads, each with a database connection, for HTTP requests"),
    _count("ORBIT_CONTROL_POOL", 4, 1, 64, "threads, each with a database connection, for start, renew and finish"),
    _ms("ORBIT_BATCH_BUDGET_MS", 8_000, 100, 25_000, "longest work on one batch submission"),
    _count("ORBIT_AUTH_FAILURES_PER_MINUTE", 20, 1, 100_000, "failed authentications of one address before 429"),
    _days("ORBIT_RETAIN_TASKS", 30, 1, "finished tasks and their attempts are kept"),
    _days("ORBIT_RETAIN_EVENTS", 30, 1, "events are kept"),
    _days("ORBIT_RETAIN_RECEIPTS", 90, limits.IDEMPOTENCY_DAYS, "idempotency records are kept after acceptance"),
    _days("ORBIT_RETAIN_AUDIT", 400, 1, "audit entries are kept"),
    _days("ORBIT_RETAIN_REPORTS", 30, 1, "report receipts of storage nodes are kept"),
    _variable(
        "ORBIT_LOG_FORMAT",
        values.choice("console", "json"),
        None,
        "how log lines are written",
        default_note="console in debug, else json",
    ),
    _variable(
        "ORBIT_LOG_LEVEL", values.choice("DEBUG", "INFO", "WARNING", "ERROR"), "INFO", "the least grave lines written"
    ),
    _variable(
        "ORBIT_METRICS_TOKEN",
        values.text(16, 512),
        None,
        "bearer token for /metrics from elsewhere than loopback",
        secret=True,
    ),
)
BY_NAME: Final = {variable.name: variable for variable in VARIABLES}

# Good enough on a loopback address, where ORBIT_DEBUG is allowed; `make run` makes a private one.
DEBUG_SECRET_KEY: Final = "orbit-debug-only-key-that-everybody-can-read-in-the-source"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Relation:
    """A rule between settings: the variable to blame, what must hold, in words and as a test."""

    name: str
    expected: str
    holds: Callable[[Configuration], bool]
    found: Callable[[Configuration], str]


SILENT_PINGS_MIN: Final = 3

RELATIONS: Final[tuple[Relation, ...]] = (
    Relation(
        "ORBIT_SCAN_CYCLE_MS",
        "less than ORBIT_RESERVATION_MS",
        lambda c: c.scan_cycle_ms < c.reservation_ms,
        lambda c: f"{c.scan_cycle_ms} and {c.reservation_ms}",
    ),
    Relation(
        "ORBIT_RESERVATION_MS",
        "less than ORBIT_LEASE_MS",
        lambda c: c.reservation_ms < c.lease_ms,
        lambda c: f"{c.reservation_ms} and {c.lease_ms}",
    ),
    Relation(
        "ORBIT_FINISH_GRACE_MS",
        "less than ORBIT_LEASE_MS",
        lambda c: c.finish_grace_ms < c.lease_ms,
        lambda c: f"{c.finish_grace_ms} and {c.lease_ms}",
    ),
    Relation(
        "ORBIT_SILENCE_TIMEOUT_MS",
        f"at least {SILENT_PINGS_MIN} pings of {limits.PING_SECONDS} s",
        lambda c: c.silence_timeout_ms >= SILENT_PINGS_MIN * limits.PING_SECONDS * 1000,
        lambda c: str(c.silence_timeout_ms),
    ),
    Relation(
        "ORBIT_HELLO_TIMEOUT_MS",
        "less than ORBIT_SILENCE_TIMEOUT_MS",
        lambda c: c.hello_timeout_ms < c.silence_timeout_ms,
        lambda c: f"{c.hello_timeout_ms} and {c.silence_timeout_ms}",
    ),
    Relation(
        "ORBIT_CLAIM_POOL",
        "at most ORBIT_CLAIM_PENDING",
        lambda c: c.claim_pool <= c.claim_pending,
        lambda c: f"{c.claim_pool} and {c.claim_pending}",
    ),
    Relation(
        "ORBIT_DEBUG",
        "0 where ORBIT_HTTP_ADDR is not a loopback address",
        lambda c: not c.debug or c.http_addr.is_loopback,
        lambda c: f"1 and {c.http_addr}",
    ),
    Relation(
        "ORBIT_UPSTREAM_TOKEN",
        "ORBIT_UPSTREAM_URL set beside it",
        lambda c: c.upstream_token is None or c.upstream_url is not None,
        lambda c: "no ORBIT_UPSTREAM_URL",
    ),
)


def load(environ: Mapping[str, str]) -> Configuration:
    """The configuration that the environment describes.

    Raises ConfigurationError naming every wrong value, unknown `ORBIT_…` name and broken relation.
    """
    problems = [_unknown(name) for name in sorted(environ) if _is_unknown(name)]
    read: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for variable in VARIABLES:
        text = environ.get(variable.name)
        if text == "" and variable.default is None:
            text = None  # `ORBIT_NODE_ADDR=` in a compose file means "none"
        sources[variable.name] = "default" if text is None else "environment"
        if text is None:
            text = variable.default
        try:
            read[variable.attribute] = None if text is None else variable.kind.parse(text)
        except ValueError:
            problems.append(_wrong(variable, text or ""))
    if not problems:
        problems = _derive(read)
    if problems:
        raise ConfigurationError(problems)
    configuration = Configuration(**read, sources=sources)
    _check_relations(configuration)
    return configuration


def _check_relations(configuration: Configuration) -> None:
    problems = [
        Problem(relation.name, relation.expected, relation.found(configuration))
        for relation in RELATIONS
        if not relation.holds(configuration)
    ]
    if problems:
        raise ConfigurationError(problems)


def _derive(read: dict[str, Any]) -> list[Problem]:
    """Fill in what has no fixed default; what cannot be derived is a problem."""
    problems = []
    address: Address = read["http_addr"]
    if read["secret_key"] is None:
        if read["debug"]:
            read["secret_key"] = DEBUG_SECRET_KEY
        else:
            problems.append(
                Problem("ORBIT_SECRET_KEY", "at least 32 characters, because ORBIT_DEBUG is not 1", "nothing")
            )
    if read["allowed_hosts"] is None:
        if address.is_loopback:
            read["allowed_hosts"] = LOOPBACK_HOSTS
        else:
            problems.append(_hosts_missing(address))
    read["trusted_proxies"] = read["trusted_proxies"] or ()
    read["ws_origins"] = read["ws_origins"] or ()
    read["node_id"] = read["node_id"] or default_node_id(address)
    read["log_format"] = read["log_format"] or ("console" if read["debug"] else "json")
    return problems


def _hosts_missing(address: Address) -> Problem:
    return Problem(
        "ORBIT_ALLOWED_HOSTS",
        f"host names, separated by commas, because {address} is not a loopback address",
        "nothing",
    )


def default_node_id(address: Address) -> str:
    """Host name and bind address; a long host name is cut at its end so that the address stays whole."""
    place = str(address)
    return f"{socket.gethostname()[: NODE_ID_LENGTH_MAX - len(place) - 1]}/{place}"


def _is_unknown(name: str) -> bool:
    return (
        name.startswith(PREFIX)
        and name not in BY_NAME
        and name not in FOREIGN_NAMES
        and not name.startswith(FOREIGN_PREFIXES)
    )


def _unknown(name: str) -> Problem:
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    return Problem(name, f"a known name (perhaps {near[0]}?)" if near else "a known name", "an unknown setting")


def _wrong(variable: Variable, text: str) -> Problem:
    unit = f" ({variable.unit})" if variable.unit else ""
    return Problem(variable.name, variable.kind.expected + unit, variable.kind.shown_when_wrong(text, variable.secret))


def _described(variable: Variable, configuration: Configuration) -> Described:
    value = getattr(configuration, variable.attribute)
    text = None if value is None or value == () else variable.kind.show(value)
    return Described(
        name=variable.name,
        value=values.HIDDEN if variable.secret and text is not None else text,
        source=configuration.sources[variable.name],
        default=variable.default_text,
        unit=variable.unit,
        range=variable.kind.expected,
        secret=variable.secret,
        meaning=variable.meaning,
    )
