"""The loops themselves: pace, outages, stopping. What they do to tasks is in test_leases.py and tests/tasks_app."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import OperationalError

from tests.support.waiting import eventually
from workers_app import maintenance
from workers_app.maintenance import Loop, Maintenance


@pytest.fixture(autouse=True)
def no_database(django_db_blocker) -> Iterator[None]:  # type: ignore[no-untyped-def]
    with django_db_blocker.unblock():
        yield


class Work:
    """Counts its calls; fails while `error` is set; has more to do for `batches` calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.batches = 0

    def __call__(self) -> bool:
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.batches -= 1
        return self.batches > 0


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def run() -> Iterator:  # type: ignore[type-arg]
    """Runs loops that are stopped with the test."""
    started: list[Maintenance] = []

    def start(*loops: Loop) -> Maintenance:
        made = Maintenance(loops)
        made.start()
        started.append(made)
        return made

    yield start
    for one in started:
        one.stop(wait_seconds=10)
        assert not one.is_running


def test_loop_works_again_and_again(run, work: Work) -> None:  # type: ignore[no-untyped-def]
    run(Loop("l", 0.01, work))
    eventually(lambda: work.calls >= 5)


def test_full_batch_is_followed_by_the_next_without_a_pause(run, work: Work) -> None:  # type: ignore[no-untyped-def]
    work.batches = 10
    run(Loop("l", 0.05, work))
    eventually(lambda: work.batches <= 0)
    assert work.calls >= 10


def test_one_go_has_a_bound(run, work: Work) -> None:  # type: ignore[no-untyped-def]
    work.batches = 10**9
    stopped = run(Loop("l", 0.01, work))
    eventually(lambda: work.calls > maintenance.BATCHES_MAX)
    stopped.stop(wait_seconds=10)


def test_loop_that_hangs_does_not_hold_another_up(run, work: Work) -> None:  # type: ignore[no-untyped-def]
    gate = threading.Event()
    run(Loop("stuck", 0.01, lambda: gate.wait(10)), Loop("free", 0.01, work))
    eventually(lambda: work.calls >= 5)
    gate.set()


def test_outage_is_one_line_and_the_return_another(run, work: Work, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    said: list[str] = []
    monkeypatch.setattr(maintenance.telemetry, "loop_failing", lambda name, error: said.append(f"{name} fails"))
    monkeypatch.setattr(maintenance.telemetry, "loop_recovered", lambda name: said.append(f"{name} works"))
    monkeypatch.setattr(maintenance, "_pause", lambda loop, failures: 0.01)
    work.error = OperationalError(2003, "cannot connect")
    run(Loop("l", 0.01, work))
    eventually(lambda: work.calls >= 5)
    assert said == ["l fails"]
    work.error = None
    eventually(lambda: len(said) == 2)
    assert said == ["l fails", "l works"]


def test_pause_grows_with_every_failure_up_to_its_bound_and_has_jitter() -> None:
    loop = Loop("l", 1.0, lambda: False)
    for failures, seconds in ((0, 1), (1, 2), (2, 4), (3, 8), (10, maintenance.PAUSE_SECONDS_MAX)):
        pauses = [maintenance._pause(loop, failures) for _ in range(50)]
        assert seconds * 0.8 <= min(pauses) < max(pauses) <= seconds * 1.2
