"""Create, beyond the seed's list: the weekly limit, lost answers of COMMIT, and what bounds a slow upstream."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, connections

from lifecycle_app.domain import creation
from lifecycle_app.states import Decision, IntentState
from tasks_app.errors import AlreadyExists, QuotaExceeded, Unavailable, UpstreamFailed
from tests.lifecycle_app.site import ACTOR, Site, count

S = IntentState
GID = 7


class TestWeeklyLimit:
    def test_the_sum_of_the_week_plus_open_reservations_is_bounded_per_requester(self, site: Site):
        site.limit(3)
        site.submitted(1)
        site.unknown(2)  # neither metered nor released: it counts as one
        site.submitted(3)
        with pytest.raises(QuotaExceeded) as refused:
            site.create(4)
        assert refused.value.details[0] | {"field": "", "reason": ""} == {
            "field": "", "reason": "", "limit": 3, "used": 2, "reserved": 1,
        }  # fmt: skip
        assert not site.has_intent(4) and site.row(4) is None
        assert site.play.submits(4) == 0
        site.submitted(4, requester="another")

    def test_a_released_reservation_makes_room(self, site: Site):
        site.limit(1)
        site.unknown(1)
        with pytest.raises(QuotaExceeded):
            site.create(2)
        site.reconcile(1, Decision.NOT_SUBMITTED)
        site.submitted(2)

    def test_the_quantity_counts_not_the_number(self, site: Site):
        site.limit(10)
        site.play.script("prepare", 1, "size:10")
        site.submitted(1)
        with pytest.raises(QuotaExceeded):
            site.create(2)

    def test_when_the_sum_alone_is_at_the_limit_only_next_week_helps(self, site: Site):
        site.limit(1)
        site.submitted(1)
        with pytest.raises(QuotaExceeded) as refused:
            site.create(2)
        assert 1_000 < (refused.value.retry_after_ms or 0) <= 7 * 86_400_000

    def test_when_a_reservation_is_in_the_way_it_may_end_soon(self, site: Site):
        site.limit(1)
        site.unknown(1)
        with pytest.raises(QuotaExceeded) as refused:
            site.create(2)
        assert refused.value.retry_after_ms == 1_000

    def test_a_limit_of_nothing_lets_nothing_through(self, site: Site):
        site.limit(0)
        with pytest.raises(QuotaExceeded):
            site.create(1)

    def test_no_limit_is_no_limit(self, site: Site):
        for gid in range(1, 6):
            site.submitted(gid)
        assert site.used() == 5

    def test_another_weeks_usage_does_not_count(self, site: Site):
        site.limit(1)
        site.submitted(1)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE orbit_weekly_usage SET week = '2020-W01'")
            cursor.execute("UPDATE orbit_usage_entry SET week = '2020-W01'")
        site.submitted(2)

    def test_simultaneous_creates_of_one_requester_never_pass_the_limit(self, site: Site):
        """200 parallel at quota N -> exactly N (faults C36), in small."""
        site.limit(3)
        barrier = threading.Barrier(8)

        def attempt(gid: int) -> object:
            barrier.wait()
            try:
                return site.create(gid)
            except QuotaExceeded:
                return None
            finally:
                connection.close()

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(attempt, range(1, 9)))
        assert answers.count(S.SUBMITTED) == 3
        assert site.used() == 3
        assert count("orbit_operation_intent") == 3


class TestNoUpstream:
    def test_without_an_upstream_nothing_is_reserved(self, site: Site):
        request = creation.CreateRequest(gid=GID, name="n", requester="ana")
        with pytest.raises(Unavailable):
            creation.create(site.namespace_id, request, upstream=None, owner=site.owner, actor=ACTOR)
        assert not site.has_intent(GID)


class losing_the_answer_of_commit:
    """The next commit of this thread takes effect (or not), and its answer is lost, as if the server had vanished."""

    def __init__(self, *, at: int, took_effect: bool) -> None:
        self._left = at
        self._took_effect = took_effect

    def __enter__(self) -> None:
        wrapper = connections["default"]
        self._real = wrapper._commit  # type: ignore[attr-defined]

        def commit() -> None:
            self._left -= 1
            if self._left != 0:
                self._real()
                return
            if self._took_effect:
                self._real()
            else:
                wrapper.rollback()
            raise OperationalError(2013, "Lost connection to server during query")

        wrapper._commit = commit  # type: ignore[attr-defined]

    def __exit__(self, *unused: object) -> None:
        del connections["default"]._commit  # type: ignore[attr-defined]


class TestLostAnswersOfCommit:
    """The three commits of a create, each with its answer lost, each way: the identity tells, nothing is guessed."""

    @pytest.mark.parametrize("took_effect", [True, False])
    @pytest.mark.parametrize("at", [1, 2, 3])
    def test_the_truth_is_learned_from_the_operation_id(self, site: Site, at, took_effect):
        with losing_the_answer_of_commit(at=at, took_effect=took_effect):
            state = site.create(GID)
        expected = S.SUBMITTED if took_effect or at < 3 else S.UNKNOWN
        assert (state, site.state(GID)) == (expected, expected.value)
        assert site.play.submits(GID) == 1
        assert len(site.usage(GID)) == (1 if expected is S.SUBMITTED else 0)


class TestBounds:
    def test_a_slow_upstream_holds_only_so_many_threads_and_the_others_are_told_at_once(self, site: Site, monkeypatch):
        monkeypatch.setattr(creation, "UPSTREAM_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(creation, "_upstream_calls", threading.BoundedSemaphore(1))
        inside, go_on = threading.Event(), threading.Event()

        class Slow:
            prepare = staticmethod(site.play.adapter.prepare)
            lookup = staticmethod(site.play.adapter.lookup)

            def submit(self, prepared, *, gid, operation_id):
                inside.set()
                assert go_on.wait(10)
                return site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)

        def first() -> object:
            try:
                return site.create(1, upstream=Slow())
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(first)
            assert inside.wait(10)
            with pytest.raises(Unavailable):
                site.create(2)
            assert not site.has_intent(2) and site.row(2) is None
            with pytest.raises(AlreadyExists):  # losers of the same gid need no turn
                site.create(1)
            go_on.set()
            assert slow.result() is S.SUBMITTED

    def test_a_process_that_stood_still_before_the_call_does_not_make_it(self, site: Site, monkeypatch):
        monkeypatch.setattr(creation, "SUBMIT_DELAY_SECONDS_MAX", -1)
        with pytest.raises(Unavailable):
            site.create(GID)
        assert site.play.submits(GID) == 0
        assert not site.has_intent(GID)

    def test_an_adapter_that_breaks_after_the_call_began_is_unknown(self, site: Site):
        class Broken:
            prepare = staticmethod(site.play.adapter.prepare)
            lookup = staticmethod(site.play.adapter.lookup)

            def submit(self, prepared, *, gid, operation_id):
                site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)
                raise RuntimeError("a fault of the adapter")

        assert site.create(GID, upstream=Broken()) is S.UNKNOWN
        assert site.play.submits(GID) == 1

    def test_a_reservation_that_recovery_took_back_is_not_submitted(self, site: Site):
        class Slow:
            lookup = staticmethod(site.play.adapter.lookup)
            submit = staticmethod(site.play.adapter.submit)

            def prepare(self, gid):
                with ThreadPoolExecutor(1) as other:
                    other.submit(self.meanwhile, gid).result()
                return site.play.adapter.prepare(gid)

            def meanwhile(self, gid):
                try:
                    site.put(gid, owner_node_id="gone")
                    assert site.recover().released == 1
                finally:
                    connection.close()

        with pytest.raises(Unavailable):
            site.create(GID, upstream=Slow())
        assert site.play.submits(GID) == 0


class TestAudit:
    def test_every_move_leaves_an_entry(self, site: Site):
        site.submitted(1)
        assert site.audited(1) == ["operation.create", "operation.submit", "operation.submitted"]
        site.unknown(2)
        assert site.audited(2) == ["operation.create", "operation.submit", "operation.unknown"]
        site.play.script("submit", 3, "refuse")
        with pytest.raises(UpstreamFailed):
            site.create(3)
        assert site.audited(3) == ["operation.create", "operation.submit", "operation.refused"]
        site.play.script("prepare", 4, "refuse")
        with pytest.raises(UpstreamFailed):
            site.create(4)
        assert site.audited(4) == ["operation.create", "operation.release"]
