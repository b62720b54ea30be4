"""The table of design 4.4, row by row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_app.messages import ReportedTask
from lifecycle_app.reports import (
    Adoption,
    EndDelete,
    FailDelete,
    Ignore,
    IgnoredBecause,
    KnownIntent,
    KnownTask,
    Move,
    decide,
)
from lifecycle_app.states import NOT_CERTAIN, IntentState
from lifecycle_app.statuses import DisplayStatus, NodeStatus

S = IntentState
B = IgnoredBecause
OPERATION_ID, OTHER_ID, DELETE_ID = "a" * 32, "b" * 32, "d" * 32
NODE, OTHER_NODE = "1" * 32, "2" * 32


def intent(state=S.SUBMITTED, *, last_revision=3, legacy=False) -> KnownIntent:
    deleting = state in (S.DELETE_PENDING, S.DELETED)
    return KnownIntent(state, OPERATION_ID, DELETE_ID if deleting else None, last_revision, legacy)


def task(status=DisplayStatus.SUBMITTED, *, progress=10, storage_node_id=NODE) -> KnownTask:
    return KnownTask(status, progress, storage_node_id)


def entry(**members) -> ReportedTask:
    return ReportedTask(**({"gid": 5, "status": NodeStatus.DOWNLOADING, "operation_id": OPERATION_ID} | members))


def decided(known=..., row=..., said=..., *, revision=4, node=NODE, adoptable=True):
    return decide(
        intent=intent() if known is ... else known,
        task=task() if row is ... else row,
        entry=entry() if said is ... else said,
        revision=revision,
        storage_node_id=node,
        adoptable=adoptable,
    )


class TestTableRows:
    def test_unknown_gid_changes_nothing(self):
        """未知 gid 忽略但回执."""
        assert decided(None, None) == Ignore(B.UNKNOWN_GID)

    @pytest.mark.parametrize("operation_id", [OPERATION_ID, DELETE_ID, OTHER_ID, None])
    @pytest.mark.parametrize("deleted", [False, True])
    def test_a_tombstone_ignores_every_report_for_ever(self, operation_id, deleted):
        """墓碑永久忽略所有上报(含同一 operationId)."""
        said = entry(operation_id=operation_id, deleted=deleted)
        assert decided(intent(S.DELETED), None, said, revision=10**9) == Ignore(B.TOMBSTONE)

    @pytest.mark.parametrize("operation_id", [OPERATION_ID, OTHER_ID, None])
    def test_a_row_waiting_for_its_delete_ignores_progress(self, operation_id):
        """待删除任务的上报被丢弃."""
        assert decided(intent(S.DELETE_PENDING), said=entry(operation_id=operation_id)) == Ignore(B.DELETE_PENDING)

    def test_progress_under_the_delete_id_is_no_confirmation(self):
        assert decided(intent(S.DELETE_PENDING), said=entry(operation_id=DELETE_ID)) == Ignore(B.DELETE_PENDING)

    @pytest.mark.parametrize("operation_id", [OPERATION_ID, OTHER_ID, None])
    def test_a_confirmation_with_another_id_does_not_end_the_delete(self, operation_id):
        """删除意图 ID 不匹配时不得完成删除."""
        said = entry(status=None, deleted=True, operation_id=operation_id)
        assert decided(intent(S.DELETE_PENDING), said=said) == Ignore(B.DELETE_PENDING)

    def test_the_confirmation_with_the_delete_id_ends_it_whatever_the_revision(self):
        said = entry(status=None, deleted=True, operation_id=DELETE_ID)
        assert decided(intent(S.DELETE_PENDING, last_revision=99), said=said, revision=1) == EndDelete()

    def test_a_failure_with_the_delete_id_keeps_the_row(self):
        said = entry(status=None, error="disk is read-only", operation_id=DELETE_ID)
        assert decided(intent(S.DELETE_PENDING), said=said) == FailDelete("disk is read-only")

    def test_confirmation_and_failure_at_once_count_as_failure(self):
        said = entry(status=None, deleted=True, error="half", operation_id=DELETE_ID)
        assert decided(intent(S.DELETE_PENDING), said=said) == FailDelete("half")

    def test_a_confirmation_from_a_node_that_was_not_told_does_not_count(self):
        said = entry(status=None, deleted=True, operation_id=DELETE_ID)
        assert decided(intent(S.DELETE_PENDING), said=said, node=OTHER_NODE) == Ignore(B.OTHER_STORAGE_NODE)

    @pytest.mark.parametrize("operation_id", [OPERATION_ID, None])
    @pytest.mark.parametrize("legacy", [False, True])
    def test_a_row_given_to_another_storage_node_changes_nothing(self, operation_id, legacy):
        known = intent(legacy=legacy)
        assert decided(known, said=entry(operation_id=operation_id), node=OTHER_NODE) == Ignore(B.OTHER_STORAGE_NODE)

    @pytest.mark.parametrize("legacy", [False, True])
    def test_another_generation_changes_nothing(self, legacy):
        """迟到的旧世代上报被丢弃且不改变当前任务."""
        assert decided(intent(legacy=legacy), said=entry(operation_id=OTHER_ID)) == Ignore(B.OTHER_GENERATION)

    def test_no_operation_id_on_a_v2_generation_changes_nothing(self):
        """新 v2 已知世代缺归属的上报仍被拒."""
        assert decided(said=entry(operation_id=None)) == Ignore(B.NO_OPERATION_ID)

    @pytest.mark.parametrize("revision", [4, None])
    def test_no_operation_id_on_a_legacy_intent_is_applied(self, revision):
        """旧节点不带 operationId 的连续上报保持可接受."""
        move = decided(intent(legacy=True), said=entry(operation_id=None, progress=20), revision=revision)
        assert move == Move(DisplayStatus.DOWNLOADING, 20, 3 if revision is None else 4)

    @pytest.mark.parametrize("operation_id", [OTHER_ID, None])
    def test_a_row_that_never_had_an_intent_is_adopted(self, operation_id):
        """首次收到上报时补建一次世代(优先采纳上报里的 operationId)."""
        move = decided(None, task(storage_node_id=None), entry(operation_id=operation_id), revision=1)
        assert move == Move(DisplayStatus.DOWNLOADING, 10, 1, adopt=Adoption(operation_id))

    @pytest.mark.parametrize(("operation_id", "adoptable"), [("not-an-id", True), ("A" * 32, True), (OTHER_ID, False)])
    def test_an_id_that_cannot_be_this_rows_is_not_adopted(self, operation_id, adoptable):
        said = entry(operation_id=operation_id)
        assert decided(None, task(), said, adoptable=adoptable) == Ignore(B.OTHER_GENERATION)

    @pytest.mark.parametrize("revision", [1, 2, 3])
    @pytest.mark.parametrize(("legacy", "operation_id"), [(False, OPERATION_ID), (True, OPERATION_ID), (True, None)])
    def test_a_revision_that_is_not_newer_changes_nothing(self, revision, legacy, operation_id):
        """过期 revision 的上报被丢弃."""
        said = entry(operation_id=operation_id)
        assert decided(intent(legacy=legacy), said=said, revision=revision) == Ignore(B.OLD_REVISION)

    def test_else_status_progress_and_revision_move(self):
        move = decided(said=entry(status=NodeStatus.COMPRESSING, progress=80), revision=4)
        assert move == Move(DisplayStatus.COMPRESSING, 80, 4)


class TestOrder:
    """The first row that fits decides."""

    def test_a_tombstone_goes_before_everything(self):
        assert decided(intent(S.DELETED), None, entry(operation_id=OTHER_ID), node=OTHER_NODE) == Ignore(B.TOMBSTONE)

    def test_delete_pending_goes_before_the_node_and_the_generation(self):
        said = entry(operation_id=OTHER_ID)
        assert decided(intent(S.DELETE_PENDING), said=said, node=OTHER_NODE) == Ignore(B.DELETE_PENDING)

    def test_the_node_goes_before_the_generation(self):
        assert decided(said=entry(operation_id=OTHER_ID), node=OTHER_NODE) == Ignore(B.OTHER_STORAGE_NODE)

    def test_the_generation_goes_before_the_revision(self):
        assert decided(said=entry(operation_id=OTHER_ID), revision=1) == Ignore(B.OTHER_GENERATION)


class TestWhatIsStricterThanTheTable:
    @pytest.mark.parametrize("state", sorted(NOT_CERTAIN))
    def test_an_uncertain_generation_shows_no_progress(self, state):
        """不变量 4: no download without metering."""
        assert decided(intent(state, last_revision=0)) == Ignore(B.NOT_CERTAIN)

    @pytest.mark.parametrize("state", [S.SUBMITTED])
    def test_a_row_does_not_go_because_a_node_lost_its_files(self, state):
        assert decided(intent(state), said=entry(status=None, deleted=True)) == Ignore(B.NOT_DELETING)

    def test_an_entry_that_says_nothing_moves_nothing(self):
        assert decided(said=entry(status=None)) == Ignore(B.NOTHING_SAID)


class TestWhatMoves:
    def test_progress_alone_keeps_the_status(self):
        assert decided(said=entry(status=None, progress=55)) == Move(DisplayStatus.SUBMITTED, 55, 4)

    def test_status_alone_keeps_the_progress(self):
        assert decided() == Move(DisplayStatus.DOWNLOADING, 10, 4)

    def test_complete_without_progress_is_complete(self):
        assert decided(said=entry(status=NodeStatus.COMPLETE)) == Move(DisplayStatus.COMPLETE, 100, 4)

    def test_a_row_without_a_node_takes_its_reporter(self):
        assert isinstance(decided(row=task(storage_node_id=None), node=OTHER_NODE), Move)


known_intents = st.builds(
    lambda state, revision, legacy: intent(state, last_revision=revision, legacy=legacy),
    st.sampled_from(S),
    st.integers(0, 5),
    st.booleans(),
)
entries = st.builds(
    ReportedTask,
    gid=st.just(5),
    status=st.none() | st.sampled_from(NodeStatus),
    progress=st.none() | st.integers(0, 100),
    deleted=st.booleans(),
    error=st.none() | st.just("e"),
    operation_id=st.sampled_from([None, OPERATION_ID, OTHER_ID, DELETE_ID, "x"]),
)


@given(st.none() | known_intents, entries, st.none() | st.integers(1, 8), st.sampled_from([NODE, OTHER_NODE]))
def test_no_report_can_break_what_must_hold(known, said, revision, node):
    row = None if known is not None and known.state is S.DELETED else task()
    decision = decide(intent=known, task=row, entry=said, revision=revision, storage_node_id=node)
    if isinstance(decision, Move):
        assert node == NODE
        assert known is None or known.state is S.SUBMITTED
        assert known is None or decision.last_revision >= known.last_revision
        assert known is None or revision is None or decision.last_revision > known.last_revision
        assert known is None or said.operation_id == OPERATION_ID or (said.operation_id is None and known.legacy)
        assert (decision.adopt is not None) == (known is None)
    if isinstance(decision, EndDelete | FailDelete):
        assert known is not None and known.state is S.DELETE_PENDING
        assert said.operation_id == DELETE_ID
