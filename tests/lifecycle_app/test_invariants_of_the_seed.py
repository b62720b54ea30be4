"""The ten invariants (不变量) of the lifecycle seed, and every bullet of its list of checks (验证), each by name.

The classes follow the seed's text. Here the domain runs in this process, with real transactions and a real upstream
over sockets; `test_lifecycle_over_sockets.py` shows the same through a server and a storage node, `test_crashes.py`
with processes that are killed.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import DatabaseError, connection

from lifecycle_app.domain import creation, delivery, metering, notifications
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.models import Delivery, Favorite, LifecycleTask, OperationIntent
from lifecycle_app.states import AckResult, CommandAction, Decision, IntentState, StorageProtocol
from lifecycle_app.statuses import DisplayStatus
from tasks_app import ids
from tasks_app.errors import AlreadyExists, FailedPrecondition, NotFound, UpstreamFailed
from tasks_app.instants import process_now_us
from tests.lifecycle_app.site import (
    ACTOR,
    Site,
    alive,
    confirm,
    count,
    failure,
    new_owner,
    progress,
    rows_of,
)

S = IntentState
GID = 7


def orphaned(site: Site, gid: int, state: IntentState) -> OperationIntent:
    """A generation whose process died in `state`: RESERVED before the call, SUBMITTING around it."""
    gone = Owner(site.owner.node_id, ids.new_id(process_now_us()))
    site.submitted(gid)
    entry = {"owner_node_id": gone.node_id, "owner_incarnation": gone.incarnation}
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_usage_entry WHERE gid = %s", [gid])
        cursor.execute("DELETE FROM orbit_weekly_usage")
        cursor.execute("DELETE FROM orbit_notification WHERE gid = %s", [gid])
    LifecycleTask.objects.filter(gid=gid).update(status="SUBMITTING", delivery=Delivery.NONE)
    site.put(gid, state=state.value, submitted_at=None, **entry)
    return site.intent(gid)


class TestOneLiveIntentPerGid:
    """1 gid只有一个有效生命周期意图"""

    def test_six_threads_create_one_gid_the_upstream_is_asked_once_and_there_is_one_row(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ):
        """同 gid 6 线程并发创建:上游只被提交一次、任务行不超过一条."""
        # On a busy machine one second is no sign of a silent upstream.
        monkeypatch.setattr(site.play, "adapter", replace(site.play.adapter, timeout_ms=10_000))
        barrier = threading.Barrier(6)

        def attempt(number: int) -> object:
            barrier.wait()
            try:
                return site.create(GID, requester=f"requester {number}")
            except AlreadyExists as error:
                return error
            finally:
                connection.close()

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(attempt, range(6)))
        assert sum(answer is S.SUBMITTED for answer in answers) == 1
        assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 5
        assert site.play.submits(GID) == 1
        assert count("orbit_lifecycle_task") == count("orbit_operation_intent") == 1
        assert len(site.usage(GID)) == 1

    def test_losers_cause_nothing(self, site: Site):
        site.submitted(GID)
        before = site.play.asked(), site.intent(GID).operation_id
        with pytest.raises(AlreadyExists) as refused:
            site.create(GID, requester="another")
        assert refused.value.details[0]["state"] == "SUBMITTED"
        assert (site.play.asked(), site.intent(GID).operation_id) == before
        assert site.used("another") == 0

    def test_the_same_gid_of_another_namespace_is_another_gid(self, site: Site):
        from tests.lifecycle_app.site import make_site

        site.submitted(GID)
        make_site(site.play).submitted(GID)
        assert site.play.submits(GID) == 2

    @pytest.mark.parametrize("state", [S.RESERVED, S.SUBMITTING])
    def test_a_create_on_a_generation_that_is_under_way_is_refused_with_its_state(self, site: Site, state):
        orphaned(site, GID, state)
        with pytest.raises(AlreadyExists) as refused:
            site.create(GID)
        assert refused.value.details[0]["state"] == state.value
        site.recover()


class TestSideEffectOnlyAfterTheIntent:
    """2 上游副作用只在意图持久化之后发生"""

    def test_intent_and_placeholder_are_there_before_the_upstream_is_asked_and_submitting_before_submit(
        self, site: Site
    ):
        """意图与占位行先于上游 POST;SUBMITTING 先于 submit."""
        seen: list[tuple[str, str, str]] = []

        class Watching:
            """What an outsider sees in the database at the moment of each call."""

            def prepare(self, gid):
                seen.append(("prepare", *outsider(gid)))
                return site.play.adapter.prepare(gid)

            def submit(self, prepared, *, gid, operation_id):
                seen.append(("submit", *outsider(gid)))
                return site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)

            def lookup(self, gid):
                return site.play.adapter.lookup(gid)

        def outsider(gid: int) -> tuple[str, str]:
            with ThreadPoolExecutor(1) as other:
                return other.submit(look, gid).result()

        def look(gid: int) -> tuple[str, str]:
            try:
                return site.state(gid), site.shown(gid)
            finally:
                connection.close()

        site.create(GID, upstream=Watching())
        assert seen == [("prepare", "RESERVED", "SUBMITTING"), ("submit", "SUBMITTING", "SUBMITTING")]

    def test_prepare_only_reads(self, site: Site):
        site.submitted(GID)
        assert site.play.asked() == [("prepare", "7"), ("submit", "7")]

    def test_a_failed_prepare_releases_the_reservation_and_submits_nothing(self, site: Site):
        site.play.script("prepare", GID, "refuse")
        with pytest.raises(UpstreamFailed):
            site.create(GID)
        assert not site.has_intent(GID)
        assert site.row(GID) is None
        assert site.play.submits(GID) == 0
        site.submitted(GID)


class TestNothingIsSentAgainAfterSubmitting:
    """3 SUBMITTING 之后绝不自动重发"""

    @pytest.mark.parametrize(
        "word",
        ["slow:1500", "slow_before_effect:1500", "drop_before_effect", "drop_after_effect", "error", "garbage", "cut",
         "redirect", "accepted_202", "array"],
    )  # fmt: skip
    def test_a_lost_outcome_is_unknown_and_a_second_click_asks_nobody(self, site: Site, word):
        """上游超时后落 UNKNOWN;再次点击创建也不会第二次 POST."""
        intent = site.unknown(GID, word)
        assert site.shown(GID) == "SUBMIT_UNKNOWN"
        with pytest.raises(AlreadyExists) as refused:
            site.create(GID)
        assert refused.value.details[0]["state"] == "UNKNOWN"
        assert site.play.submits(GID) == 1
        assert site.intent(GID).operation_id == intent.operation_id
        assert site.usage(GID) == []

    def test_the_evidence_says_what_was_asked_and_what_came_back(self, site: Site):
        evidence = json.loads(site.unknown(GID, "error_after_effect").evidence or "[]")
        assert [(e["kind"], e["request"], e["status"]) for e in evidence] == [("SUBMIT", "POST /submissions", 503)]
        assert "broken" in evidence[0]["answer"]
        assert evidence[0]["at"].endswith("Z")

    def test_an_explicit_refusal_is_certain_and_releases(self, site: Site):
        site.play.script("submit", GID, "refuse")
        with pytest.raises(UpstreamFailed) as failed:
            site.create(GID)
        assert failed.value.details[0]["status"] == 422
        assert not site.has_intent(GID)
        assert site.usage(GID) == []

    def test_recovery_judges_an_interrupted_submitting_unknown_and_releases_what_was_only_reserved(self, site: Site):
        """重启恢复把中断的 SUBMITTING 判为 UNKNOWN(任务行同步显示「提交未知」),安全释放 RESERVED 占位,

        且不改写 operationId、不重发.
        """
        submitting = orphaned(site, 1, S.SUBMITTING)
        orphaned(site, 2, S.RESERVED)
        asked = site.play.asked()
        recovered = site.recover()
        assert (recovered.unknown, recovered.released) == (1, 1)
        assert (site.state(1), site.shown(1)) == ("UNKNOWN", "SUBMIT_UNKNOWN")
        assert site.intent(1).operation_id == submitting.operation_id
        assert not site.has_intent(2) and site.row(2) is None
        assert site.play.asked() == asked
        evidence = json.loads(site.intent(1).evidence or "[]")
        assert evidence[-1]["kind"] == "RECOVERED"
        assert evidence[-1]["owner"] == site.owner.node_id

    def test_recovery_twice_changes_nothing_more(self, site: Site):
        orphaned(site, 1, S.SUBMITTING)
        site.recover()
        before = rows_of("orbit_operation_intent")
        assert site.recover().total == 0
        assert rows_of("orbit_operation_intent") == before


class TestNoTaskWithoutMetering:
    """4 任务行与周用量在同一短事务里写入;重复落库不重复计量"""

    def test_row_state_and_metering_are_one_transaction(self, site: Site):
        site.play.script("prepare", GID, "size:12")
        intent = site.submitted(GID)
        (entry,) = site.usage(GID)
        assert (entry.operation_id, entry.quantity, entry.requester) == (intent.operation_id, 12, "ana")
        assert site.used() == 12
        assert intent.submitted_at is not None

    def test_a_metering_failure_rolls_everything_back_and_leaves_it_unknown(self, site: Site, points):
        """额度写入失败时落库事务回滚,任务保持可对账的「提交未知」+ UNKNOWN."""

        def fail() -> None:
            raise DatabaseError("the usage table is broken")

        points.once("lifecycle.metered", fail)
        assert site.create(GID) is S.UNKNOWN
        assert (site.state(GID), site.shown(GID)) == ("UNKNOWN", "SUBMIT_UNKNOWN")
        assert site.usage(GID) == [] and site.used() == 0
        evidence = json.loads(site.intent(GID).evidence or "[]")
        assert evidence[0]["result"] == "ACCEPTED"  # the operator sees what the upstream said
        site.reconcile(GID, Decision.SUBMITTED)
        assert len(site.usage(GID)) == 1 and site.used() == 1

    def test_a_real_trigger_in_the_database_that_refuses_the_usage_row(self, site: Site):
        with refusing_usage():
            assert site.create(GID) is S.UNKNOWN
        assert (site.state(GID), site.shown(GID), site.usage(GID)) == ("UNKNOWN", "SUBMIT_UNKNOWN", [])

    def test_writing_it_down_again_does_not_meter_again(self, site: Site):
        """重复落库不重复计量."""
        from tasks_app.transactions import unit

        intent = site.submitted(GID)
        row = site.row(GID)
        assert row is not None
        for _ in range(3):
            unit(lambda tx: metering.record_usage(tx, intent, row))
        assert len(site.usage(GID)) == 1
        assert site.used() == 1

    def test_a_generation_that_was_deleted_or_replaced_meanwhile_is_not_revived(self, site: Site):
        """落库严格匹配本次创建世代(expectedOperationId),被删除/换代后不得复活已删 gid."""

        class Reconciled:
            """While the call is open, an operator says that it was not submitted."""

            def __init__(self, then):
                self.then = then

            prepare = staticmethod(site.play.adapter.prepare)
            lookup = staticmethod(site.play.adapter.lookup)

            def submit(self, prepared, *, gid, operation_id):
                outcome = site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)
                with ThreadPoolExecutor(1) as other:
                    other.submit(self.meanwhile, gid).result()
                return outcome

            def meanwhile(self, gid):
                try:
                    site.put(gid, owner_incarnation=ids.new_id(process_now_us()))
                    site.recover()
                    site.reconcile(gid, Decision.NOT_SUBMITTED)
                    self.then(gid)
                finally:
                    connection.close()

        with pytest.raises(FailedPrecondition):
            site.create(1, upstream=Reconciled(then=lambda gid: None))
        assert not site.has_intent(1) and site.row(1) is None and site.usage(1) == []
        assert site.audited(1)[-1] == "operation.late_answer"

        with pytest.raises(FailedPrecondition):
            site.create(2, upstream=Reconciled(then=lambda gid: site.create(gid, requester="second")))
        row = site.row(2)
        assert row is not None and row.requester == "second"
        assert [entry.requester for entry in site.usage(2)] == ["second"]

    def test_the_answer_of_an_owner_that_was_only_slow_still_counts(self, site: Site):
        """The owner was taken for dead and its intent judged UNKNOWN; its certain answer settles it after all."""

        class Slow:
            prepare = staticmethod(site.play.adapter.prepare)
            lookup = staticmethod(site.play.adapter.lookup)

            def submit(self, prepared, *, gid, operation_id):
                with ThreadPoolExecutor(1) as other:
                    other.submit(self.meanwhile, gid).result()
                return site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)

            def meanwhile(self, gid):
                try:
                    site.put(gid, owner_incarnation=ids.new_id(process_now_us()))
                    assert site.recover().unknown == 1
                finally:
                    connection.close()

        assert site.create(GID, upstream=Slow()) is S.SUBMITTED
        assert (site.state(GID), site.play.submits(GID), len(site.usage(GID))) == ("SUBMITTED", 1, 1)


class TestAFailedDeleteKeepsTheRecord:
    """5 删除失败保留记录"""

    def test_failure_keeps_row_and_intent_retry_has_the_same_id_success_clears_all_but_the_tombstone(self, site: Site):
        """删除失败保留任务行与意图,重试复用同一删除 ID;成功后清收藏、删行、留墓碑."""
        from lifecycle_app.domain import favorites

        site.submitted(GID)
        favorites.add(site.namespace_id, GID, "ana")
        node = site.connect()
        site.told(node)
        delete_id = site.delete(GID).delete_operation_id
        assert delete_id is not None
        (command,) = site.told(node)
        assert (command.action, command.operation_id) == (CommandAction.DELETE, delete_id)

        assert site.report(node, failure(GID, delete_id)) is AckResult.APPLIED
        assert (site.state(GID), site.shown(GID)) == ("DELETE_PENDING", "DELETE_FAILED")
        assert site.intent(GID).delete_operation_id == delete_id
        assert site.told(node) == []  # not again by itself

        assert site.delete(GID).delete_operation_id == delete_id
        assert site.shown(GID) == "DELETE_PENDING"
        assert [command.operation_id for command in site.told(node)] == [delete_id]

        assert site.report(node, confirm(GID, delete_id)) is AckResult.APPLIED
        assert site.state(GID) == "DELETED"
        assert site.row(GID) is None
        assert Favorite.objects.count() == 0
        assert site.intent(GID).delete_operation_id == delete_id

    def test_another_delete_id_does_not_complete_the_delete(self, site: Site):
        """删除意图 ID 不匹配时不得完成删除."""
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        site.delete(GID)
        for wrong in (intent.operation_id, ids.new_id(process_now_us()), None):
            assert site.report(node, confirm(GID, wrong)) is AckResult.IGNORED
            assert (site.state(GID), site.shown(GID)) == ("DELETE_PENDING", "DELETE_PENDING")

    @pytest.mark.parametrize("state", [S.RESERVED, S.SUBMITTING])
    def test_what_is_being_submitted_cannot_be_deleted(self, site: Site, state):
        """正在提交(RESERVED/SUBMITTING)的任务拒绝删除."""
        orphaned(site, GID, state)
        with pytest.raises(FailedPrecondition) as refused:
            site.delete(GID)
        assert refused.value.details[0]["state"] == state.value
        assert site.state(GID) == state.value
        site.recover()

    def test_what_is_unknown_must_be_reconciled_first(self, site: Site):
        site.unknown(GID)
        with pytest.raises(FailedPrecondition, match="reconciled first"):
            site.delete(GID)

    def test_a_release_clears_only_the_generation_it_names(self, site: Site):
        """释放预占只清匹配世代的记录与占位行."""
        from lifecycle_app.domain.creation import Reservation
        from lifecycle_app.domain.transitions import Why
        from tasks_app.transactions import unit

        orphaned(site, GID, S.RESERVED)
        stale = Reservation(site.namespace_id, GID, ids.new_id(process_now_us()))
        assert unit(lambda tx: creation._release_in(tx, stale, {S.RESERVED}, Why(ACTOR, "x"))) is False
        assert site.state(GID) == "RESERVED" and site.row(GID) is not None
        site.recover()

    def test_deleting_twice_is_not_found(self, site: Site):
        site.deleted(GID)
        with pytest.raises(NotFound):
            site.delete(GID)
        with pytest.raises(NotFound):
            site.delete(GID + 1)


class TestReportsAdvanceByRevisionAndGeneration:
    """6 上报按 revision 单调推进,按 operationId 归属"""

    def test_status_and_progress_move_with_a_newer_revision(self, site: Site):
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        for revision, status, percent in ((1, 1, 40), (2, 2, 100), (3, 3, 100), (4, 4, 100)):
            entry = progress(GID, intent.operation_id, status, percent)
            assert site.report(node, entry, revision=revision) is AckResult.APPLIED
            assert site.intent(GID).last_revision == revision
        assert site.shown(GID) == "COMPLETE"

    def test_a_late_report_of_an_old_generation_changes_nothing(self, site: Site):
        """迟到的旧世代上报被丢弃且不改变当前任务."""
        old = site.deleted(GID)
        new = site.submitted(GID)
        node = site.connect()
        site.told(node)
        assert site.report(node, progress(GID, old.operation_id, 4), revision=99) is AckResult.IGNORED
        assert site.report(node, confirm(GID, old.delete_operation_id)) is AckResult.IGNORED
        assert (site.state(GID), site.shown(GID)) == ("SUBMITTED", "SUBMITTED")
        assert site.intent(GID).operation_id == new.operation_id

    def test_a_tombstone_ignores_everything_and_only_a_create_with_a_new_id_brings_it_back(self, site: Site):
        """墓碑永久忽略所有上报(含同一 operationId),只允许显式 CREATE 用新 operationId 重建."""
        dead = site.deleted(GID)
        node = site.connect()
        for operation_id in (dead.operation_id, dead.delete_operation_id, None):
            assert site.report(node, progress(GID, operation_id, 4), revision=10**6) is AckResult.IGNORED
            assert site.report(node, confirm(GID, operation_id)) is AckResult.IGNORED
        assert site.state(GID) == "DELETED" and site.row(GID) is None
        new = site.submitted(GID)
        assert new.operation_id not in (dead.operation_id, dead.delete_operation_id)
        assert new.intent_id == dead.intent_id
        assert (new.last_revision, new.delete_operation_id, new.tombstone) == (0, None, None)
        assert {entry.operation_id for entry in site.usage(GID)} == {dead.operation_id, new.operation_id}

    def test_a_new_generation_that_comes_to_nothing_leaves_the_tombstone(self, site: Site):
        dead = site.deleted(GID)
        before = rows_of("orbit_operation_intent")[0]
        site.play.script("submit", GID, "refuse")
        with pytest.raises(UpstreamFailed):
            site.create(GID)
        after = rows_of("orbit_operation_intent")[0]
        assert after.updated_at > before.updated_at
        after.updated_at = before.updated_at
        for owned in ("owner_node_id", "owner_incarnation", "evidence"):
            setattr(after, owned, getattr(before, owned))
        assert after == before
        assert site.intent(GID).operation_id == dead.operation_id

    def test_consecutive_reports_of_an_old_node_without_operation_id_are_accepted_those_of_a_v2_generation_are_not(
        self, site: Site
    ):
        """旧节点不带 operationId 的连续上报保持可接受;新 v2 已知世代缺归属的上报仍被拒."""
        site.submitted(1)
        old = site.connect("old", protocol=StorageProtocol.LEGACY)
        assert site.told(old, StorageProtocol.LEGACY)
        assert site.intent(1).legacy is True
        for status, shown in ((1, "DOWNLOADING"), (2, "WAITING_COMPRESSION"), (4, "COMPLETE")):
            site.report(old, progress(1, None, status), revision=None, report_id=None)
            assert site.shown(1) == shown

        from lifecycle_app.domain import storage_nodes

        storage_nodes.disconnected(old)
        site.submitted(2)
        new = site.connect("new")
        assert site.told(new)
        assert site.report(new, progress(2, None), revision=1) is AckResult.IGNORED
        assert site.shown(2) == "SUBMITTED"

    def test_stale_revision_missing_operation_id_and_pending_delete_are_dropped_an_unknown_gid_is_acknowledged(
        self, site: Site
    ):
        """过期 revision、缺 operationId、待删除任务的上报都被丢弃;未知 gid 忽略但回执."""
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        site.report(node, progress(GID, intent.operation_id, 2), revision=5)
        assert site.report(node, progress(GID, intent.operation_id, 4), revision=5) is AckResult.IGNORED
        assert site.report(node, progress(GID, intent.operation_id, 4), revision=4) is AckResult.IGNORED
        assert site.report(node, progress(GID, None, 4), revision=6) is AckResult.IGNORED
        assert site.shown(GID) == "WAITING_COMPRESSION"
        site.delete(GID)
        assert site.report(node, progress(GID, intent.operation_id, 4), revision=7) is AckResult.IGNORED
        assert site.shown(GID) == "DELETE_PENDING"
        assert site.report(node, progress(99, intent.operation_id)) is AckResult.IGNORED
        assert not site.has_intent(99)

    def test_a_row_from_before_gets_one_generation_and_keeps_what_it_showed(self, site: Site):
        """旧任务行没有操作记录,首次收到上报时补建一次「世代」(优先采纳上报里的 operationId),不改动其已有状态."""
        for gid, said in ((1, ids.new_id(process_now_us())), (2, None)):
            LifecycleTask.objects.create(
                task_id=ids.new_id(process_now_us()), namespace_id=site.namespace_id, gid=gid, name="old",
                requester="ana", status="DOWNLOADING", progress=30, created_at=process_now_us(),
                updated_at=process_now_us(),
            )  # fmt: skip
            node = site.connect()
            assert site.report(node, progress(gid, said, 2), revision=1) is AckResult.APPLIED
            intent = site.intent(gid)
            assert intent.legacy is True and intent.state == "SUBMITTED"
            assert said in (None, intent.operation_id)
            assert site.report(node, progress(gid, said, 3), revision=2) is AckResult.APPLIED
            assert site.intent(gid).operation_id == intent.operation_id
            assert (site.shown(gid), site.row(gid).progress) == ("COMPRESSING", 30)  # type: ignore[union-attr]
        assert site.used() == 0  # metered in its own time, not by Orbit


class TestAcknowledgedOnlyAfterTheCommit:
    """7 回执只在提交之后发送"""

    def test_nothing_is_acknowledged_when_the_database_fails(self, site: Site, points):
        """回执写入失败时 apply 返回不可回执结果."""
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)

        def fail() -> None:
            raise DatabaseError("the disk is full")

        points.once("lifecycle.report.before_commit", fail)
        entry = progress(GID, intent.operation_id, 2)
        assert site.report(node, entry, report_id="r1") is None
        assert (site.shown(GID), site.intent(GID).last_revision) == ("SUBMITTED", 0)
        assert count("orbit_report_receipt") == 0
        assert site.report(node, entry, report_id="r1") is AckResult.APPLIED  # the node sends its snapshot again

    def test_a_repeat_is_acknowledged_and_tells_nobody_twice(self, site: Site):
        """重复上报不重复通知."""
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        entry = progress(GID, intent.operation_id, 1)
        assert site.report(node, entry, report_id="r1") is AckResult.APPLIED
        for _ in range(3):
            assert site.report(node, entry, report_id="r1") is AckResult.DUPLICATE
        assert site.report(node, entry, report_id="r2", revision=2) is AckResult.APPLIED
        assert site.told_people(GID) == ["SUBMITTED", "DOWNLOADING"]

    def test_the_same_report_on_two_connections_at_once_is_applied_once(self, site: Site):
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        barrier = threading.Barrier(4)

        def send(_: int) -> object:
            barrier.wait()
            try:
                return site.report(node, progress(GID, intent.operation_id, 1), report_id="same")
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as pool:
            results = sorted(str(result) for result in pool.map(send, range(4)))
        assert results == ["APPLIED", "DUPLICATE", "DUPLICATE", "DUPLICATE"]
        assert count("orbit_report_receipt") == 1

    def test_a_report_id_belongs_to_its_node(self, site: Site):
        intent = site.submitted(GID)
        first, second = site.connect("first"), site.connect("second")
        site.report(second, progress(99, None), report_id="r1")
        site.told(first)
        given = first if site.row(GID).storage_node_id == first.reporter.storage_node_id else second  # type: ignore[union-attr]
        assert site.report(given, progress(GID, intent.operation_id), report_id=f"r1-{given.connection_id}")
        assert count("orbit_report_receipt") == 2


class TestNotificationsAfterTheCommit:
    """8 通知与 WebSocket 推送在事务提交之后、由独立执行器发送"""

    def test_a_notification_is_a_row_of_the_same_transaction_and_no_call(self, site: Site, points, settings):
        settings.ORBIT = with_notify_url(settings.ORBIT)

        def fail() -> None:
            raise DatabaseError("rolled back")

        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        told = site.told_people(GID)
        points.once("lifecycle.report.before_commit", fail)
        assert site.report(node, progress(GID, intent.operation_id, 4)) is None
        assert site.told_people(GID) == told
        assert [due.attempts for due in notifications.take_due()] == [1]

    def test_the_life_of_a_gid_is_told_once_per_status(self, site: Site):
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        for revision, status in ((1, 1), (2, 4), (3, 1), (4, 4)):
            site.report(node, progress(GID, intent.operation_id, status), revision=revision)
        delete_id = site.delete(GID).delete_operation_id
        site.report(node, failure(GID, delete_id))
        site.delete(GID)
        site.report(node, confirm(GID, delete_id))
        assert site.told_people(GID) == [
            "SUBMITTED", "DOWNLOADING", "COMPLETE", "DELETE_PENDING", "DELETE_FAILED", "DELETED",
        ]  # fmt: skip


class TestOnlyWhatIsCertainIsDispatched:
    """9 只有确认已提交(SUBMITTED)或迁移前确实提交过的旧任务才允许下发给节点"""

    @pytest.mark.parametrize("protocol", [StorageProtocol.V2, StorageProtocol.LEGACY])
    def test_what_is_refused_is_never_sent_and_does_not_become_an_old_message_either(self, site: Site, protocol):
        """判定为拒绝的任务(UNKNOWN 等)绝不下发,也不退化为无 operationId 的旧命令."""
        site.unknown(1)
        orphaned(site, 2, S.RESERVED)
        orphaned(site, 3, S.SUBMITTING)
        site.deleted(4)
        node = site.connect(protocol=protocol)
        assert site.told(node, protocol) == []
        assert [site.intent(gid).legacy for gid in (1, 2, 3)] == [False] * 3
        site.recover()

    @pytest.mark.parametrize("state", [state for state in S if state is not S.SUBMITTED])
    def test_the_resolver_lets_nothing_else_be_downloaded(self, state):
        assert delivery.deliverable(state) is (CommandAction.DELETE if state is S.DELETE_PENDING else None)

    @pytest.mark.parametrize("status", [DisplayStatus.SUBMITTING, DisplayStatus.SUBMIT_UNKNOWN])
    def test_the_database_itself_refuses_an_uncertain_row_that_waits_for_delivery(self, site: Site, status):
        from django.db import IntegrityError

        site.unknown(GID)
        with pytest.raises((IntegrityError, DatabaseError)):
            LifecycleTask.objects.filter(gid=GID).update(status=status.value, delivery=Delivery.WAITING.value)

    def test_a_row_is_sent_again_with_the_same_operation_id_until_its_first_applied_report(self, site: Site):
        """重投/重试复用同一 operationId."""
        intent = site.submitted(GID)
        sent = []
        for _ in range(3):
            node = site.connect()
            sent += site.told(node)
            assert site.told(node) == []  # once per connection
        assert [(c.action, c.operation_id) for c in sent] == [(CommandAction.DOWNLOAD, intent.operation_id)] * 3
        site.report(node, progress(GID, intent.operation_id))
        assert site.told(site.connect()) == []

    def test_complete_is_never_sent_again(self, site: Site):
        intent = site.submitted(GID)
        node = site.connect()
        site.told(node)
        site.report(node, progress(GID, intent.operation_id, 4))
        assert site.told(site.connect()) == []

    def test_what_was_submitted_before_the_migration_may_be_deleted_on_its_node(self, site: Site):
        LifecycleTask.objects.create(
            task_id=ids.new_id(process_now_us()), namespace_id=site.namespace_id, gid=GID, name="old", requester="ana",
            status="COMPLETE", progress=100, created_at=process_now_us(), updated_at=process_now_us(),
        )  # fmt: skip
        node = site.connect()
        assert site.told(node) == []
        delete_id = site.delete(GID).delete_operation_id
        assert [(c.action, c.operation_id) for c in site.told(node)] == [(CommandAction.DELETE, delete_id)]


class TestStartUpOrder:
    """10 启动时先绑定上报处理器与判定解析器、执行恢复,完成之后才允许连接与自动重投 (see also test_startup.py)"""

    def test_recovery_is_of_earlier_incarnations_at_once_and_of_other_nodes_after_thirty_seconds(self, site: Site):
        orphaned(site, 1, S.SUBMITTING)
        for gid, seconds_ago in ((2, 5), (3, 25), (4, 31)):
            orphaned(site, gid, S.SUBMITTING)
            other = alive(new_owner(), seconds_ago=seconds_ago)
            site.put(gid, owner_node_id=other.node_id, owner_incarnation=other.incarnation)
        site.recover()
        assert [site.state(gid) for gid in (1, 2, 3, 4)] == ["UNKNOWN", "SUBMITTING", "SUBMITTING", "UNKNOWN"]
        for gid in (2, 3):  # for the books
            site.put(gid, owner_incarnation=ids.new_id(process_now_us()))
        site.recover()

    def test_an_owner_that_is_alive_is_left_alone_by_its_own_process(self, site: Site):
        seen = []

        class Recovering:
            prepare = staticmethod(site.play.adapter.prepare)
            lookup = staticmethod(site.play.adapter.lookup)

            def submit(self, prepared, *, gid, operation_id):
                with ThreadPoolExecutor(1) as other:
                    seen.append(other.submit(self.meanwhile).result())
                return site.play.adapter.submit(prepared, gid=gid, operation_id=operation_id)

            def meanwhile(self):
                try:
                    return site.recover().total
                finally:
                    connection.close()

        assert site.create(GID, upstream=Recovering()) is S.SUBMITTED
        assert seen == [0]

    def test_what_this_process_left_behind_is_an_orphan_too(self, site: Site, points):
        def fail() -> None:
            raise RuntimeError("a fault between two steps")

        points.once("lifecycle.create.submitting", fail)
        with pytest.raises(RuntimeError):
            site.create(GID)
        assert site.state(GID) == "SUBMITTING"
        assert site.recover().unknown == 1

    def test_two_nodes_recover_at_once_and_each_intent_is_recovered_by_one(self, site: Site):
        for gid in range(1, 9):
            orphaned(site, gid, S.SUBMITTING)
        second = alive(new_owner())
        from lifecycle_app.domain import recovery

        for gid in range(1, 9):
            site.put(gid, owner_node_id="gone")
        barrier = threading.Barrier(2)

        def recover(owner: Owner) -> int:
            barrier.wait()
            try:
                return recovery.recover_at_start(owner).unknown
            finally:
                connection.close()

        with ThreadPoolExecutor(2) as pool:
            recovered = list(pool.map(recover, [site.owner, second]))
        assert sum(recovered) == 8
        assert all(site.audited(gid)[-1] == "operation.recover" for gid in range(1, 9))
        assert all(site.audited(gid).count("operation.recover") == 1 for gid in range(1, 9))


def with_notify_url(configuration):
    import dataclasses

    return dataclasses.replace(configuration, notify_url="http://127.0.0.1:9/notify")


class refusing_usage:
    """A trigger that refuses every usage entry, as a full or broken table would."""

    def __enter__(self) -> None:
        body = (
            "BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END"
            if connection.vendor == "mysql"
            else "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        each = " FOR EACH ROW"
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TRIGGER refuse_usage BEFORE INSERT ON orbit_usage_entry{each} {body}")

    def __exit__(self, *unused: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse_usage")
