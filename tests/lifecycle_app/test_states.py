"""The table of intent states, and its groups."""

import itertools

import pytest

from lifecycle_app import limits, states
from lifecycle_app.states import DECISIONS, MOVES, Decision, IntentState, is_move

S = IntentState


def test_every_state_has_its_moves_and_its_decisions():
    assert set(MOVES) == set(DECISIONS) == set(S)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (S.RESERVED, S.SUBMITTING),
        (S.SUBMITTING, S.SUBMITTED),
        (S.SUBMITTING, S.UNKNOWN),
        (S.SUBMITTED, S.DELETE_PENDING),
        (S.UNKNOWN, S.SUBMITTED),
        (S.DELETE_PENDING, S.DELETED),
        (S.DELETED, S.RESERVED),
    ],
)
def test_legal_move(before, after):
    assert is_move(before, after)


def test_no_other_move_is_legal():
    legal = {(before, after) for before, afters in MOVES.items() for after in afters}
    assert len(legal) == 7
    for before, after in itertools.product(S, S):
        assert is_move(before, after) == ((before, after) in legal)


def test_nothing_leads_from_unknown_back_to_a_submit():
    """不变量 3: after SUBMITTING nothing is sent again by itself, however many moves follow."""
    reachable, front = set(), {S.UNKNOWN}
    while front:
        reachable |= front
        front = {after for before in front - {S.DELETED} for after in MOVES[before]} - reachable
    assert S.SUBMITTING not in reachable
    assert S.RESERVED not in reachable


def test_a_tombstone_is_left_only_by_an_explicit_create():
    assert MOVES[S.DELETED] == {S.RESERVED}
    assert DECISIONS[S.DELETED] == frozenset()


def test_what_may_be_sent_to_a_storage_node():
    """不变量 9: SUBMITTED alone."""
    assert states.DOWNLOADABLE == {S.SUBMITTED}
    assert not states.DOWNLOADABLE & states.NOT_CERTAIN


def test_what_may_be_decided_where():
    assert DECISIONS[S.UNKNOWN] == {Decision.SUBMITTED, Decision.NOT_SUBMITTED, Decision.LOOKUP}
    assert DECISIONS[S.DELETE_PENDING] == {Decision.DELETED}
    assert DECISIONS[S.SUBMITTED] == {Decision.REASSIGN}
    assert not DECISIONS[S.RESERVED] and not DECISIONS[S.SUBMITTING]


def test_an_orphan_is_unknown_within_35_seconds_of_its_owners_death():
    assert limits.OWNER_SILENCE_SECONDS_MAX == 30
    assert limits.OWNER_SILENCE_SECONDS_MAX + limits.RECOVERY_SWEEP_SECONDS < 35
