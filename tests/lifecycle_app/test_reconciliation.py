"""Reconcile: each decision in each state, what was seen, and why (design 4.8)."""

from __future__ import annotations

import json

import pytest

from lifecycle_app.domain import storage_nodes
from lifecycle_app.states import DECISIONS, AckResult, CommandAction, Decision, IntentState, StorageProtocol
from tasks_app import ids
from tasks_app.errors import FailedPrecondition, InvalidArgument, NotFound, RevisionConflict, UpstreamFailed
from tasks_app.instants import process_now_us
from tests.lifecycle_app.site import Site, confirm, progress, rows_of

S, D = IntentState, Decision
GID = 7


class TestUnknown:
    def test_submitted_writes_row_metering_and_state_once(self, site: Site):
        site.play.script("prepare", GID, "size:5")
        intent = site.unknown(GID)
        site.reconcile(GID, D.SUBMITTED)
        assert (site.state(GID), site.shown(GID)) == ("SUBMITTED", "SUBMITTED")
        assert [(e.operation_id, e.quantity) for e in site.usage(GID)] == [(intent.operation_id, 5)]
        assert site.used() == 5
        with pytest.raises(RevisionConflict):
            site.reconcile(GID, D.SUBMITTED, state=S.UNKNOWN)
        assert site.used() == 5
        node = site.connect()
        assert [c.operation_id for c in site.told(node)] == [intent.operation_id]

    def test_not_submitted_releases_intent_and_placeholder(self, site: Site):
        site.unknown(GID, "drop_before_effect")
        site.reconcile(GID, D.NOT_SUBMITTED)
        assert not site.has_intent(GID) and site.row(GID) is None
        assert site.usage(GID) == []
        assert site.submitted(GID)
        assert site.play.submits(GID) == 2  # two generations, one submit each

    def test_not_submitted_of_a_later_generation_leaves_the_tombstone(self, site: Site):
        dead = site.deleted(GID)
        site.unknown(GID)
        site.reconcile(GID, D.NOT_SUBMITTED)
        assert (site.state(GID), site.intent(GID).operation_id) == ("DELETED", dead.operation_id)

    @pytest.mark.parametrize(("word", "found"), [("drop_after_effect", True), ("drop_before_effect", False)])
    def test_lookup_asks_changes_nothing_and_is_kept_as_evidence(self, site: Site, word, found):
        intent = site.unknown(GID, word)
        looked_up = site.reconcile(GID, D.LOOKUP)
        assert looked_up.found is found
        after = site.intent(GID)
        assert (after.state, after.operation_id) == ("UNKNOWN", intent.operation_id)
        assert site.shown(GID) == "SUBMIT_UNKNOWN"
        entries = json.loads(after.evidence or "[]")
        assert [entry["kind"] for entry in entries] == ["SUBMIT", "LOOKUP"]
        assert entries[1]["found"] is found
        assert site.play.submits(GID) == 1

    def test_a_lookup_that_fails_says_so_and_decides_nothing(self, site: Site):
        site.unknown(GID)
        site.play.script("lookup", GID, "error")
        with pytest.raises(UpstreamFailed):
            site.reconcile(GID, D.LOOKUP)
        assert site.state(GID) == "UNKNOWN"

    def test_reports_that_arrived_since_are_evidence_and_move_nothing(self, site: Site):
        intent = site.unknown(GID)
        node = site.connect()
        assert site.report(node, progress(GID, intent.operation_id, 4, 100), revision=9) is AckResult.IGNORED
        assert (site.shown(GID), site.intent(GID).last_revision) == ("SUBMIT_UNKNOWN", 0)
        entry = json.loads(site.intent(GID).evidence or "[]")[-1]
        assert (entry["kind"], entry["storage_node"], entry["status"], entry["revision"]) == ("REPORT", "node-1", 4, 9)


class TestDeletePending:
    def test_deleted_is_an_operators_word_that_the_files_are_gone(self, site: Site):
        site.submitted(GID)
        delete_id = site.delete(GID).delete_operation_id
        site.reconcile(GID, D.DELETED)
        assert site.state(GID) == "DELETED" and site.row(GID) is None
        assert site.intent(GID).delete_operation_id == delete_id

    def test_that_is_how_the_delete_of_a_legacy_node_ends(self, site: Site):
        site.submitted(GID)
        old = site.connect(protocol=StorageProtocol.LEGACY)
        site.told(old, StorageProtocol.LEGACY)
        site.delete(GID)
        assert [c.action for c in site.told(old, StorageProtocol.LEGACY)] == [CommandAction.DELETE]
        site.reconcile(GID, D.DELETED)
        assert site.state(GID) == "DELETED"


class TestReassign:
    def given(self, site: Site):
        """A row that `first` has half downloaded, and a second node that waits."""
        intent = site.submitted(GID)
        first = site.connect("first")
        site.told(first)
        site.report(first, progress(GID, intent.operation_id, 1, 60), revision=8)
        return intent, first, site.connect("second")

    def test_another_node_takes_the_row_over_and_delivery_begins_anew(self, site: Site):
        intent, first, second = self.given(site)
        site.reconcile(GID, D.REASSIGN)
        row = site.row(GID)
        assert row is not None
        assert (row.storage_node_id, row.progress, row.status) == (second.reporter.storage_node_id, 0, "SUBMITTED")
        assert site.intent(GID).last_revision == 0
        assert site.told(first) == []
        assert [c.operation_id for c in site.told(second)] == [intent.operation_id]
        assert site.report(first, progress(GID, intent.operation_id, 4), revision=99) is AckResult.IGNORED
        assert site.report(second, progress(GID, intent.operation_id, 1), revision=1) is AckResult.APPLIED
        assert site.shown(GID) == "DOWNLOADING"

    def test_it_begins_anew_even_when_complete_was_known(self, site: Site):
        intent, first, second = self.given(site)
        site.report(first, progress(GID, intent.operation_id, 4), revision=9)
        site.reconcile(GID, D.REASSIGN)
        assert [c.action for c in site.told(second)] == [CommandAction.DOWNLOAD]

    def test_a_legacy_row_that_goes_to_a_v2_node_is_legacy_no_more(self, site: Site):
        intent = site.submitted(GID)
        old = site.connect("old", protocol=StorageProtocol.LEGACY)
        site.told(old, StorageProtocol.LEGACY)
        new = site.connect("new")
        site.reconcile(GID, D.REASSIGN)
        assert site.intent(GID).legacy is False
        assert site.told(new)
        assert site.report(new, progress(GID, None)) is AckResult.IGNORED
        assert site.report(new, progress(GID, intent.operation_id), revision=2) is AckResult.APPLIED

    def test_without_another_node_nothing_changes(self, site: Site):
        site.submitted(GID)
        first = site.connect("first")
        site.told(first)
        second = site.connect("second")
        storage_nodes.disconnected(second)
        before = rows_of("orbit_lifecycle_task")
        with pytest.raises(FailedPrecondition, match="no other storage node"):
            site.reconcile(GID, D.REASSIGN)
        assert rows_of("orbit_lifecycle_task") == before


class TestWhatWasSeen:
    @pytest.mark.parametrize(
        ("state", "decision"), [(state, decision) for state in S for decision in D if decision not in DECISIONS[state]]
    )
    def test_a_decision_that_does_not_fit_the_state_is_refused(self, site: Site, state, decision):
        intent = site.unknown(GID)
        with pytest.raises(FailedPrecondition) as refused:
            site.reconcile(GID, decision, state=state)
        assert refused.value.details[0]["field"] == "decision"
        assert site.intent(GID).evidence == intent.evidence

    @pytest.mark.parametrize(
        "seen", [{"operation_id": ids.new_id(process_now_us())}, {"state": S.SUBMITTED}], ids=["generation", "state"]
    )
    def test_what_changed_since_it_was_seen_is_a_conflict_that_says_what_it_is_now(self, site: Site, seen):
        intent = site.unknown(GID)
        decision = D.REASSIGN if "state" in seen else D.NOT_SUBMITTED
        with pytest.raises(RevisionConflict) as refused:
            site.reconcile(GID, decision, **seen)
        assert [d["current"] for d in refused.value.details] == [intent.operation_id, "UNKNOWN"]
        assert site.state(GID) == "UNKNOWN"

    @pytest.mark.parametrize("reason", ["", "   ", "x" * 1001])
    def test_a_reason_is_required(self, site: Site, reason):
        site.unknown(GID)
        with pytest.raises(InvalidArgument):
            site.reconcile(GID, D.NOT_SUBMITTED, reason=reason)
        assert site.state(GID) == "UNKNOWN"

    def test_an_unknown_gid_is_not_found(self, site: Site):
        from lifecycle_app.domain import reconciliation
        from lifecycle_app.domain.reconciliation import Verdict
        from tests.lifecycle_app.site import ACTOR

        verdict = Verdict(ids.new_id(process_now_us()), S.UNKNOWN, D.NOT_SUBMITTED, "why")
        with pytest.raises(NotFound):
            reconciliation.reconcile(site.namespace_id, 99, verdict, upstream=None, actor=ACTOR)

    @pytest.mark.parametrize(
        ("decision", "state"),
        [(D.SUBMITTED, S.UNKNOWN), (D.NOT_SUBMITTED, S.UNKNOWN), (D.LOOKUP, S.UNKNOWN), (D.DELETED, S.DELETE_PENDING),
         (D.REASSIGN, S.SUBMITTED)],
    )  # fmt: skip
    def test_every_decision_leaves_an_audit_entry_with_its_reason(self, site: Site, decision, state):
        if state is S.UNKNOWN:
            site.unknown(GID)
        else:
            site.submitted(GID)
            site.told(site.connect("first"))
            site.connect("second")
        if state is S.DELETE_PENDING:
            site.delete(GID)
        site.reconcile(GID, decision, reason="因为 I looked")
        entries = rows_of("orbit_audit_entry", "action = 'operation.reconcile'")
        assert [(e.reason, json.loads(e.data)["decision"]) for e in entries] == [("因为 I looked", decision.value)]


def test_confirm_after_an_operators_word_changes_nothing(site: Site):
    site.submitted(GID)
    node = site.connect()
    site.told(node)
    delete_id = site.delete(GID).delete_operation_id
    site.reconcile(GID, D.DELETED)
    assert site.report(node, confirm(GID, delete_id)) is AckResult.IGNORED
    assert site.state(GID) == "DELETED"
