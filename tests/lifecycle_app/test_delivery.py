"""Who is told what, where, and how often (design 4.5); and which connection of a node counts (4.7)."""

from __future__ import annotations

import pytest

from lifecycle_app.domain import delivery, storage_nodes
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.models import StorageNode
from lifecycle_app.states import AckResult, CommandAction, StorageProtocol
from tasks_app import ids
from tasks_app.domain import tenancy
from tasks_app.domain.audit import SYSTEM
from tasks_app.errors import PermissionDenied, Unauthenticated
from tasks_app.instants import process_now_us
from tasks_app.transactions import unit
from tests.lifecycle_app.site import Site, alive, dead, make_site, new_owner, principal_with, progress
from tests.tasks_app.factories import make_tenant

V2, LEGACY = StorageProtocol.V2, StorageProtocol.LEGACY


def assigned(site: Site) -> dict[int, str | None]:
    delivery.assign_waiting([site.namespace_id])
    names = dict(StorageNode.objects.values_list("storage_node_id", "name"))
    from lifecycle_app.models import LifecycleTask

    rows = LifecycleTask.objects.filter(namespace_id=site.namespace_id).order_by("gid")
    return {row.gid: names.get(row.storage_node_id or "") for row in rows}


class TestChoosingTheNode:
    def test_the_connected_one_with_the_fewest_unfinished_rows(self, site: Site):
        site.connect("a")
        site.connect("b")
        for gid in range(1, 5):
            site.submitted(gid)
        chosen = assigned(site)
        assert sorted(chosen.values(), key=str) == ["a", "a", "b", "b"]

    def test_finished_rows_are_no_load(self, site: Site):
        a = site.connect("a")
        intent = site.submitted(1)
        assigned(site)
        site.report(a, progress(1, intent.operation_id, 4))
        site.connect("b")
        site.submitted(2)
        site.submitted(3)
        assert sorted([assigned(site)[2], assigned(site)[3]], key=str) == ["a", "b"]

    def test_it_stays_when_another_is_idle_or_the_chosen_one_leaves(self, site: Site):
        a = site.connect("a")
        site.submitted(1)
        assert assigned(site) == {1: "a"}
        storage_nodes.disconnected(a)
        b = site.connect("b")
        assert assigned(site) == {1: "a"}
        assert site.told(b) == []

    def test_nobody_connected_means_that_the_row_waits(self, site: Site):
        site.submitted(1)
        assert assigned(site) == {1: None}
        node = site.connect("late")
        assert [command.gid for command in site.told(node)] == [1]

    def test_a_connection_that_died_with_its_orbit_node_is_none(self, site: Site):
        gone = alive(new_owner())
        site.connect("a", owner=gone)
        dead(gone)
        site.submitted(1)
        assert assigned(site) == {1: None}

    def test_a_connection_of_an_orbit_node_that_is_silent_for_thirty_seconds_is_none(self, site: Site):
        silent = alive(new_owner(), seconds_ago=31)
        site.connect("a", owner=silent)
        site.submitted(1)
        assert assigned(site) == {1: None}

    def test_a_restarted_orbit_node_holds_none_of_the_old_connections(self, site: Site):
        site.connect("a")
        site.submitted(1)
        alive(Owner(site.owner.node_id, ids.new_id(process_now_us())))
        assert assigned(site) == {1: None}

    def test_nodes_of_another_namespace_are_not_asked(self, site: Site):
        other = make_site(site.play)
        other.connect("a")
        site.submitted(1)
        assert assigned(site) == {1: None}

    def test_a_row_whose_delete_waits_gets_a_node_too(self, site: Site):
        site.submitted(1)
        delete_id = site.delete(1).delete_operation_id
        node = site.connect()
        assert [(c.action, c.operation_id) for c in site.told(node)] == [(CommandAction.DELETE, delete_id)]


class TestSending:
    def test_only_what_is_waiting_is_looked_for_on_idle_connections(self, site: Site):
        a, b = site.connect("a"), site.connect("b")
        assert delivery.with_work([a, b]) == []
        site.submitted(1)
        delivery.assign_waiting([site.namespace_id])
        (busy,) = delivery.with_work([a, b])
        assert delivery.take_commands(busy, V2)
        assert delivery.with_work([a, b]) == []

    def test_the_command_names_gid_name_and_operation_id(self, site: Site):
        intent = site.submitted(5, name="图库 5")
        (command,) = site.told(site.connect())
        assert command == delivery.Command(CommandAction.DOWNLOAD, 5, "图库 5", intent.operation_id)

    def test_a_row_that_is_deleted_before_it_was_sent_is_only_deleted(self, site: Site):
        site.submitted(1)
        site.delete(1)
        assert [c.action for c in site.told(site.connect())] == [CommandAction.DELETE]

    def test_a_row_becomes_legacy_before_it_leaves_as_an_old_message(self, site: Site):
        site.submitted(1)
        site.told(site.connect(protocol=LEGACY), LEGACY)
        assert site.intent(1).legacy is True

    def test_a_row_that_leaves_as_a_command_does_not_become_legacy(self, site: Site):
        site.submitted(1)
        site.told(site.connect())
        assert site.intent(1).legacy is False

    def test_a_connection_that_was_replaced_takes_nothing(self, site: Site):
        site.submitted(1)
        old, new = site.connect("a"), site.connect("a")
        assert site.told(old) == []
        assert [command.gid for command in site.told(new)] == [1]

    def test_more_than_a_batch_leaves_in_batches(self, site: Site, monkeypatch):
        monkeypatch.setattr(delivery, "DELIVERY_BATCH", 2)
        for gid in range(1, 6):
            site.submitted(gid)
        node = site.connect()
        sent = []
        while commands := site.told(node):
            assert len(commands) <= 2
            sent += [command.gid for command in commands]
        assert sent == [1, 2, 3, 4, 5]


class TestConnections:
    def test_a_node_is_made_at_its_first_authenticated_identity(self, site: Site):
        assert StorageNode.objects.count() == 0
        connected = site.connect("node-1")
        row = StorageNode.objects.get()
        assert (row.name, row.connection_id, row.protocol) == ("node-1", connected.connection_id, "V2")
        assert row.credential_id == site.tenant.credential_id
        assert row.disconnected_at is None

    def test_a_newer_connection_takes_the_place_of_the_older_and_the_older_cannot_end_it(self, site: Site):
        old, new = site.connect("node-1"), site.connect("node-1")
        assert StorageNode.objects.count() == 1
        standing = storage_nodes.standing_of([old, new])
        assert standing.replaced == {old.connection_id}
        storage_nodes.disconnected(old)
        assert StorageNode.objects.get().connection_id == new.connection_id
        assert storage_nodes.negotiated(old, V2) is False
        storage_nodes.disconnected(new)
        row = StorageNode.objects.get()
        assert row.connection_id is None and row.disconnected_at is not None

    def test_names_compare_byte_for_byte(self, site: Site):
        for name in ("a", "A", "á", "a\u0301"):
            site.connect(name)
        assert StorageNode.objects.count() == 4

    def test_without_the_action_nobody_connects(self, site: Site):
        principal = principal_with(site, ["tasks:read", "operations:write"])
        token = unit(
            lambda tx: tenancy.issue_credential(
                tx, namespace_id=principal.namespace_id, actions=["tasks:read"], queue_ids=None,
                expires_in_seconds=None, actor=SYSTEM,
            )
        ).token  # fmt: skip
        with pytest.raises(PermissionDenied):
            storage_nodes.connect_by_token("n", token=token, owner=site.owner)
        assert StorageNode.objects.count() == 0

    @pytest.mark.parametrize("token", ["", "orbit_nonsense"])
    def test_without_a_valid_token_nobody_connects(self, site: Site, token):
        with pytest.raises(Unauthenticated):
            storage_nodes.connect_by_token("n", token=token, owner=site.owner)

    def test_a_token_of_another_namespace_inside_the_identity_is_refused(self, site: Site):
        other = make_tenant()
        with pytest.raises(PermissionDenied):
            storage_nodes.connect(site.tenant.principal, "n", token=other.token, owner=site.owner)

    def test_a_revoked_credential_ends_the_connection(self, site: Site):
        connected = site.connect()
        assert storage_nodes.standing_of([connected]).credential_ended == frozenset()
        unit(lambda tx: tenancy.revoke_credential(tx, site.tenant.credential_id, actor=SYSTEM))
        assert storage_nodes.standing_of([connected]).credential_ended == {connected.connection_id}

    def test_the_same_gid_reported_by_another_namespaces_node_is_unknown(self, site: Site):
        intent = site.submitted(7)
        stranger = make_site(site.play).connect("node-1")
        assert site.report(stranger, progress(7, intent.operation_id, 4)) is AckResult.IGNORED
        assert site.shown(7) == "SUBMITTED"
