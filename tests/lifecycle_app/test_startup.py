"""不变量 10: the order of a start is enforced, not merely followed."""

import pytest

from lifecycle_app.startup import StartOrder, StartOrderViolation


def tried(error: str | None = None) -> StartOrder:
    order = StartOrder()
    order.bound()
    order.recovery_ended(error)
    return order


def test_bind_then_recover_then_connect_then_dispatch():
    order = StartOrder()
    assert not order.may_connect and not order.may_dispatch
    order.bound()
    assert not order.may_connect and not order.may_dispatch
    order.recovery_ended(None)
    assert not order.may_connect and not order.may_dispatch
    order.connections_begin()
    assert order.may_connect and order.may_dispatch


def test_recovery_before_binding_is_refused():
    with pytest.raises(StartOrderViolation):
        StartOrder().recovery_ended(None)


def test_connections_before_recovery_are_refused():
    order = StartOrder()
    with pytest.raises(StartOrderViolation):
        order.connections_begin()
    order.bound()
    with pytest.raises(StartOrderViolation):
        order.connections_begin()


def test_binding_twice_is_refused():
    order = StartOrder()
    order.bound()
    with pytest.raises(StartOrderViolation):
        order.bound()


def test_after_a_failed_recovery_nodes_may_connect_but_nothing_is_dispatched_and_readiness_says_so():
    """恢复失败时只保持连接,禁止自动派发."""
    order = tried("OperationalError")
    order.connections_begin()
    assert order.may_connect
    assert not order.may_dispatch
    assert "OperationalError" in str(order.problem())
    assert "nothing is dispatched" in str(order.problem())


def test_a_recovery_that_succeeds_later_lets_dispatch_begin():
    order = tried("OperationalError")
    order.connections_begin()
    order.recovery_ended("OperationalError")
    assert not order.may_dispatch
    order.recovery_ended(None)
    assert order.may_dispatch
    assert order.problem() is None


def test_a_sweep_that_fails_after_a_good_recovery_takes_nothing_back():
    order = tried(None)
    order.connections_begin()
    order.recovery_ended("OperationalError")
    assert order.may_dispatch


def test_a_node_that_has_not_recovered_is_not_ready():
    assert StartOrder().problem() is not None
    assert tried(None).problem() is None
