"""`unit`: all or nothing, run again as a whole where the database took it back, never where it may be committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction

from tasks_app import transactions
from tasks_app.telemetry import DATABASE_RETRIES
from tasks_app.transactions import CommitOutcomeUnknown, Tx, reading, unit
from tests.support.mysql_proxy import How, Loss, MysqlProxy, When
from tests.tasks_app.concurrency import await_lock_wait, beside, connect_outside, together
from tests.tasks_app.factories import Tenant, rows_of

SERVER = pytest.mark.mariadb_only("row locks, deadlocks and lost connections are a server's")


@pytest.fixture
def outside(database: None) -> Iterator[Any]:
    """A connection of somebody else to the same database."""
    other = connect_outside()
    yield other
    other.close()


def hold(other: Any, name: str) -> Any:
    """Locks the row of a key in a transaction of somebody else; the cursor to end it with."""
    (ref,) = [row.resource_ref for row in rows_of("orbit_resource_key") if row.resource_key == name]
    cursor = other.cursor()
    cursor.execute("START TRANSACTION")
    cursor.execute(f"SELECT held FROM orbit_resource_key WHERE resource_ref = {ref} FOR UPDATE")
    return cursor


def touch(tx: Tx, name: str) -> None:
    tx.execute("UPDATE orbit_resource_key SET recheck_at = 1 WHERE resource_key = %s", [name])


def add_key(tx: Tx, tenant: Tenant, name: str) -> None:
    """Something that can be seen afterwards."""
    tx.insert("orbit_resource_key", ("namespace_id", "resource_key", "held"), [(tenant.namespace_id, name, 0)])


def keys() -> list[str]:
    return sorted(row.resource_key for row in rows_of("orbit_resource_key"))


def retries(code: int) -> float:
    return DATABASE_RETRIES.labels(code=str(code))._value.get()


# -- all or nothing


def test_a_unit_returns_what_it_returned_once_it_is_committed(tenant: Tenant):
    assert unit(lambda tx: (add_key(tx, tenant, "a"), 5)[1]) == 5
    assert keys() == ["a"]


@pytest.mark.parametrize("error", [ValueError("no"), transactions.Refused()])
def test_a_unit_that_raises_leaves_nothing_and_tells_the_error(tenant: Tenant, error: Exception):
    def run(tx: Tx) -> None:
        add_key(tx, tenant, "a")
        raise error

    with pytest.raises(type(error)):
        unit(run)
    assert keys() == []


def test_a_broken_rule_dooms_the_whole_unit_even_if_the_body_swallows_it(tenant: Tenant):
    """No half transaction ever commits: a statement that failed may have been one of several."""

    def run(tx: Tx) -> None:
        add_key(tx, tenant, "a")
        try:
            add_key(tx, tenant, "a")
        except Exception:
            add_key(tx, tenant, "b")

    with pytest.raises(Exception, match="(?i)unique|duplicate|transaction"):
        unit(run)
    assert keys() == []


def test_a_unit_inside_a_unit_is_refused(tenant: Tenant):
    def run(tx: Tx) -> None:
        add_key(tx, tenant, "a")
        unit(lambda inner: add_key(inner, tenant, "b"))

    with pytest.raises(RuntimeError, match="durable"):
        unit(run)
    assert keys() == []


def test_a_unit_inside_an_open_transaction_is_refused(tenant: Tenant):
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        unit(lambda tx: add_key(tx, tenant, "a"))


def test_one_reading_of_the_clock_serves_the_whole_unit(tenant: Tenant):
    def run(tx: Tx) -> tuple[int, int]:
        first = tx.now_us
        tx.row("SELECT 1")
        return first, tx.now_us

    first, second = unit(run)
    assert first == second


def test_a_script_runs_every_statement_and_counts_the_rows_of_each(tenant: Tenant):
    def run(tx: Tx) -> list[int]:
        for name in "abc":
            add_key(tx, tenant, name)
        return tx.script(
            [
                ("UPDATE orbit_resource_key SET recheck_at = 1 WHERE resource_key <> %s", ["a"]),
                ("UPDATE orbit_resource_key SET recheck_at = 1 WHERE resource_key = %s", ["none"]),
                # A row that is matched and already says so is counted too.
                ("UPDATE orbit_resource_key SET recheck_at = 1 WHERE resource_key = %s", ["c"]),
            ]
        )

    assert unit(run) == [2, 0, 1]


def test_a_script_that_fails_in_the_middle_leaves_nothing(tenant: Tenant):
    insert = "INSERT INTO orbit_resource_key (namespace_id, resource_key, held) VALUES (%s, %s, %s)"

    def run(tx: Tx) -> list[int]:
        return tx.script([(insert, [tenant.namespace_id, key, held]) for key, held in (("a", 0), ("b", -1), ("c", 0))])

    with pytest.raises(Exception, match="resource_key_held_not_negative"):
        unit(run)
    assert keys() == []
    assert unit(lambda tx: add_key(tx, tenant, "d")) is None, "the connection is usable afterwards"


def test_text_that_looks_like_sql_or_a_placeholder_is_only_text(tenant: Tenant):
    names = ["'; DROP TABLE orbit_task; --", "100%s", "%", "a;b", "\\", "\0", '"', "\u2028"]
    insert = "INSERT INTO orbit_resource_key (namespace_id, resource_key, held) VALUES (%s, %s, %s)"
    unit(lambda tx: tx.script([(insert, [tenant.namespace_id, name, 0]) for name in names]))
    assert keys() == sorted(names)


def test_reading_sees_what_is_committed_and_opens_no_transaction(tenant: Tenant):
    with reading() as tx:
        assert tx.row("SELECT COUNT(*) FROM orbit_resource_key") == (0,)
        beside(lambda: unit(lambda inner: add_key(inner, tenant, "a"))).result()
        assert tx.row("SELECT COUNT(*) FROM orbit_resource_key") == (1,)


# -- after commit


def test_what_is_to_happen_after_commit_happens_after_it_and_in_order(tenant: Tenant):
    seen: list[Any] = []

    def run(tx: Tx) -> None:
        tx.after_commit(lambda: seen.append(keys()))
        tx.after_commit(lambda: seen.append("second"))
        add_key(tx, tenant, "a")
        assert seen == []

    unit(run)
    assert seen == [["a"], "second"]


def test_nothing_happens_after_a_unit_that_was_rolled_back(tenant: Tenant):
    seen: list[str] = []

    def run(tx: Tx) -> None:
        tx.after_commit(lambda: seen.append("told"))
        raise transactions.Refused

    with pytest.raises(transactions.Refused):
        unit(run)
    assert seen == []


def test_a_unit_that_was_run_again_tells_once(tenant: Tenant):
    seen: list[int] = []

    def run(tx: Tx) -> None:
        number = len(runs)
        tx.after_commit(lambda: seen.append(number))
        runs.append(1)
        if len(runs) < 3:
            raise OperationalError(1213, "Deadlock found")

    runs: list[int] = []
    unit(run)
    assert seen == [2]


def test_an_error_after_the_commit_never_runs_the_unit_again(tenant: Tenant):
    """What follows the commit may fail in any way; the commit has happened."""

    def run(tx: Tx) -> None:
        add_key(tx, tenant, f"run {len(keys())}")

        def told() -> None:
            raise OperationalError(1213, "Deadlock found")

        tx.after_commit(told)

    with pytest.raises(OperationalError):
        unit(run)
    assert keys() == ["run 0"]


# -- run again as a whole


@pytest.mark.parametrize("code", [1213, 1205, 1020])
def test_what_the_server_rolled_back_is_run_again_as_a_whole(tenant: Tenant, code: int):
    runs: list[int] = []

    def run(tx: Tx) -> str:
        runs.append(1)
        add_key(tx, tenant, f"run {len(runs)}")
        if len(runs) < 3:
            raise OperationalError(code, "the server's words")
        return "done"

    before = retries(code)
    assert unit(run) == "done"
    assert keys() == ["run 3"]
    assert retries(code) - before == 2


def test_the_tries_are_bounded_and_the_cause_is_told(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "_backoff_seconds", lambda attempt: 0.0)
    runs: list[int] = []

    def run(tx: Tx) -> None:
        runs.append(1)
        raise OperationalError(1213, "Deadlock found")

    with pytest.raises(OperationalError, match="1213"):
        unit(run)
    assert len(runs) == transactions.TRIES_MAX


@pytest.mark.parametrize("attempt", range(1, transactions.TRIES_MAX + 1))
def test_the_pause_between_tries_is_short_and_bounded(attempt: int):
    pauses = [transactions._backoff_seconds(attempt) for _ in range(50)]
    assert all(transactions.BACKOFF_SECONDS_MIN <= pause <= transactions.BACKOFF_SECONDS_MAX for pause in pauses)
    assert len(set(pauses)) > 1


@SERVER
def test_a_deadlock_is_resolved_by_running_the_victim_again(tenant: Tenant):
    """Two units take two rows in opposite order: one is the victim, both take effect."""
    for name in ("a", "b"):
        unit(lambda tx, name=name: add_key(tx, tenant, name))
    refs = {row.resource_key: row.resource_ref for row in rows_of("orbit_resource_key")}
    both_hold_one = threading.Barrier(2)
    before = retries(1213)

    def moves(first: str, second: str) -> Callable[[], None]:
        met: list[bool] = []

        def run(tx: Tx) -> None:
            add = "UPDATE orbit_resource_key SET recheck_at = COALESCE(recheck_at, 0) + 1 WHERE resource_ref = %s"
            tx.execute(add, [refs[first]])
            if not met:
                met.append(True)
                both_hold_one.wait(20)
            tx.execute(add, [refs[second]])

        return lambda: unit(run)

    assert together([moves("a", "b"), moves("b", "a")]) == [None, None]
    assert [row.recheck_at for row in rows_of("orbit_resource_key")] == [2, 2]
    assert retries(1213) - before >= 1


@SERVER
def test_a_lock_that_is_waited_for_too_long_rolls_the_whole_unit_back_and_runs_it_again(tenant: Tenant, outside: Any):
    """1205 rolls back only the statement in the server; a half unit must not be committed (faults F11)."""
    unit(lambda tx: add_key(tx, tenant, "locked"))
    holder = hold(outside, "locked")
    runs: list[int] = []

    def run(tx: Tx) -> None:
        runs.append(1)
        add_key(tx, tenant, f"run {len(runs)}")
        if len(runs) == 1:
            tx.execute("SET innodb_lock_wait_timeout = 1")
        else:
            holder.execute("ROLLBACK")
        touch(tx, "locked")

    unit(run)
    assert keys() == ["locked", "run 2"]
    connection.close()  # its time-out was changed


@SERVER
@pytest.mark.parametrize("pending", [False, True], ids=["between statements", "during a statement"])
def test_a_connection_killed_inside_the_unit_leaves_nothing_half_done(tenant: Tenant, outside: Any, pending: bool):
    """Faults F9, C5: what follows a reconnect must not commit without what came before it."""
    unit(lambda tx: add_key(tx, tenant, "locked"))
    holder = connect_outside()
    runs: list[int] = []

    def run(tx: Tx) -> None:
        runs.append(1)
        add_key(tx, tenant, f"first {len(runs)}")
        if len(runs) == 1:
            (number,) = tx.row("SELECT CONNECTION_ID()")  # type: ignore[misc]
            if pending:
                locked = hold(holder, "locked")
                killer = beside(lambda: (await_lock_wait(), outside.cursor().execute(f"KILL CONNECTION {number}")))
                try:
                    touch(tx, "locked")
                finally:
                    killer.result()
                    locked.execute("ROLLBACK")
            else:
                outside.cursor().execute(f"KILL CONNECTION {number}")
        add_key(tx, tenant, f"second {len(runs)}")

    unit(run)
    holder.close()
    assert keys() == ["first 2", "locked", "second 2"]


@SERVER
def test_a_database_that_stays_away_is_told_at_once(tenant: Tenant, proxy: MysqlProxy):
    runs: list[int] = []

    def run(tx: Tx) -> None:
        runs.append(1)
        add_key(tx, tenant, "a")
        proxy.refuse()
        proxy.cut()
        add_key(tx, tenant, "b")

    try:
        with pytest.raises((OperationalError, InterfaceError)) as told:
            unit(run)
    finally:
        proxy.refuse(False)
    assert transactions.is_unreachable(told.value)
    assert len(runs) == 1, "the second try finds no connection"
    assert keys() == []


# -- the answer to COMMIT is lost


@SERVER
@pytest.mark.parametrize("how", [How.CLOSE, How.RESET])
@pytest.mark.parametrize("when", When)
def test_a_commit_whose_answer_was_lost_is_never_run_again_blindly(
    tenant: Tenant, proxy: MysqlProxy, when: When, how: How
):
    runs: list[int] = []

    def run(tx: Tx) -> None:
        runs.append(1)
        tx.after_commit(lambda: runs.append(100))
        add_key(tx, tenant, "a")

    proxy.lose(Loss(when, how))
    with pytest.raises(CommitOutcomeUnknown):
        unit(run)
    assert runs == [1]
    assert keys() == (["a"] if when is When.AFTER else [])
    assert [commit.committed for commit in proxy.lost] == [when is When.AFTER]


@SERVER
@pytest.mark.parametrize("when", When)
def test_the_identity_is_looked_up_on_a_new_connection(tenant: Tenant, proxy: MysqlProxy, when: When):
    proxy.lose(Loss(when))
    assert unit(lambda tx: add_key(tx, tenant, "a"), on_unknown=lambda: unit(lambda tx: keys())) == (
        ["a"] if when is When.AFTER else []
    )


@SERVER
def test_a_look_up_that_fails_too_leaves_the_outcome_unknown(tenant: Tenant, proxy: MysqlProxy):
    def gone() -> None:
        proxy.refuse()
        unit(lambda tx: tx.row("SELECT 1"))

    proxy.lose(Loss(When.AFTER))
    try:
        with pytest.raises(CommitOutcomeUnknown):
            unit(lambda tx: add_key(tx, tenant, "a"), on_unknown=gone)
    finally:
        proxy.refuse(False)
    assert keys() == ["a"]


@SERVER
def test_a_commit_that_the_server_refused_is_a_definite_rollback(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """1213 as the answer to COMMIT (a cluster's certification) says for certain that nothing happened."""
    refused: list[int] = []
    real = connection._commit

    def commit() -> None:
        if not refused:
            refused.append(1)
            connection._rollback()
            raise OperationalError(1213, "Deadlock found at commit")
        real()

    monkeypatch.setattr(connection, "_commit", commit)
    runs: list[int] = []
    unit(lambda tx: (runs.append(1), add_key(tx, tenant, f"run {len(runs)}")))
    assert keys() == ["run 2"]


@SERVER
def test_a_connection_that_idled_too_long_serves_the_next_unit(tenant: Tenant, outside: Any, monkeypatch):
    """Faults C4: the server closes idle connections."""
    monkeypatch.setattr("tasks_app.databases.mysql.base.IDLE_SECONDS_BEFORE_PING", 0.0)
    (number,) = unit(lambda tx: tx.row("SELECT CONNECTION_ID()"))
    outside.cursor().execute(f"KILL CONNECTION {number}")
    runs: list[int] = []
    unit(lambda tx: (runs.append(1), add_key(tx, tenant, "a")))
    assert (runs, keys()) == ([1], ["a"])


# -- SQLite


@pytest.mark.sqlite_only("one writer at a time is SQLite's")
def test_many_writers_are_served_one_after_the_other_without_an_error(tenant: Tenant):
    """Faults C40."""
    outcomes = together([lambda n=n: unit(lambda tx: add_key(tx, tenant, str(n))) for n in range(16)])
    assert outcomes == [None] * 16
    assert len(keys()) == 16


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (OperationalError(2006, "gone away"), True),
        (OperationalError(2013, "lost"), True),
        (OperationalError(1927, "killed"), True),
        (OperationalError(4031, "idle"), True),
        (InterfaceError(0, ""), True),
        (OperationalError(1213, "deadlock"), False),
        (OperationalError(1153, "too large"), False),
        (OperationalError("database is locked"), False),
    ],
)
def test_which_errors_mean_a_lost_connection(error: Exception, lost: bool):
    assert transactions.is_lost(error) is lost
