"""When a window that keeps ending is not started again."""

from hypothesis import given
from hypothesis import strategies as st

from desktop.isolation.watch import Ended, RestartPolicy


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_third_end_within_a_minute_stops() -> None:
    clock = Clock()
    policy = RestartPolicy(clock=clock)
    assert policy.ended("crash") == "restart"
    clock.now_s += 30
    assert policy.ended("breach") == "restart"
    clock.now_s += 29.9
    assert policy.ended("crash") == "stop"
    assert policy.stopped


def test_ends_far_apart_never_stop() -> None:
    clock = Clock()
    policy = RestartPolicy(clock=clock)
    for _ in range(50):
        assert policy.ended("crash") == "restart"
        clock.now_s += 31


def test_stopped_stays_stopped_until_the_person_asks() -> None:
    clock = Clock()
    policy = RestartPolicy(clock=clock)
    for _ in range(3):
        policy.ended("crash")
    clock.now_s += 10_000
    assert policy.ended("crash") == "stop"
    policy.reset()
    assert not policy.stopped
    assert policy.ended("crash") == "restart"


@given(
    st.lists(st.tuples(st.floats(min_value=0, max_value=200), st.sampled_from(["crash", "breach"])), max_size=40),
    st.integers(min_value=1, max_value=6),
    st.floats(min_value=0.5, max_value=120),
)
def test_stops_exactly_when_a_window_of_time_holds_too_many(
    ends: list[tuple[float, Ended]], most: int, window_s: float
) -> None:
    clock = Clock()
    policy = RestartPolicy(most=most, window_s=window_s, clock=clock)
    times: list[float] = []
    too_many = False
    for wait_s, kind in ends:
        clock.now_s += wait_s
        times.append(clock.now_s)
        recent = [at for at in times if clock.now_s - at <= window_s]
        too_many = too_many or len(recent) >= most
        assert policy.ended(kind) == ("stop" if too_many else "restart")
        assert policy.stopped == too_many
