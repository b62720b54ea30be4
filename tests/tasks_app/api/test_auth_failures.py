from tasks_app.api.auth_failures import ADDRESSES_MAX, AuthFailures


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_20_failures_of_a_minute_are_let_through_and_the_next_is_not():
    clock = Clock()
    failures = AuthFailures(per_minute=20, clock=clock)
    assert [failures.count("a") for _ in range(20)] == [None] * 20
    wait_ms = failures.count("a")
    assert wait_ms is not None
    assert 0 < wait_ms <= 3001


def test_failures_are_counted_per_address():
    failures = AuthFailures(per_minute=1, clock=Clock())
    assert failures.count("a") is None
    assert failures.count("a") is not None
    assert failures.count("b") is None


def test_waiting_as_long_as_told_is_enough_and_not_much_too_long():
    clock = Clock()
    failures = AuthFailures(per_minute=20, clock=clock)
    for _ in range(20):
        failures.count("a")
    wait_ms = failures.count("a")
    assert wait_ms is not None
    clock.now += wait_ms / 1000 - 0.01
    assert failures.count("a") is not None
    clock.now += 0.02
    assert failures.count("a") is None


def test_a_quiet_minute_gives_everything_back_and_no_more():
    clock = Clock()
    failures = AuthFailures(per_minute=5, clock=clock)
    for _ in range(9):
        failures.count("a")
    clock.now += 3600
    assert [failures.count("a") is None for _ in range(6)] == [True] * 5 + [False]


def test_a_flood_of_addresses_does_not_grow_the_memory():
    failures = AuthFailures(per_minute=1, clock=Clock())
    for number in range(ADDRESSES_MAX + 50):
        failures.count(str(number))
    assert len(failures._buckets) == ADDRESSES_MAX
    assert failures.count("0") is None  # forgotten long ago
    assert failures.count(str(ADDRESSES_MAX)) is not None
