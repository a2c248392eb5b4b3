"""Health follows the table of docs/operations.md 10."""

import pytest

from shale.env import Clock
from shale.service.health import Health, Reachability, State, Verdict


class FakeClock(Clock):
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize(
    ("state", "ready", "word"),
    [
        (State.STARTING, False, "starting"),
        (State.ACTIVE, True, "ok"),
        (State.STANDBY, False, "standby"),
        (State.FENCED, False, "fenced"),
        (State.DRAINING, False, "draining"),
    ],
)
def test_readiness_follows_the_state_and_liveness_does_not(
    clock: FakeClock, state: State, ready: bool, word: str
) -> None:
    health = Health(clock)
    health.set_state(state)
    assert (health.ready().ok, health.ready().word) == (ready, word)
    assert health.live().ok


def test_startup_stays_true_once_it_was_active(clock: FakeClock) -> None:
    health = Health(clock)
    assert not health.startup().ok
    health.set_state(State.ACTIVE)
    health.set_state(State.DRAINING)
    assert health.startup().ok


def test_nobody_leaves_fenced_and_only_a_fence_ends_draining(clock: FakeClock) -> None:
    health = Health(clock)
    health.set_state(State.DRAINING)
    health.set_state(State.ACTIVE)
    assert health.state is State.DRAINING
    health.set_state(State.FENCED)
    health.set_state(State.ACTIVE)
    assert health.state is State.FENCED


def test_a_short_trouble_degrades_and_a_long_one_takes_readiness(clock: FakeClock) -> None:
    health, store = Health(clock), Reachability(clock, grace_s=30)
    health.add_ready_check("store", store.check)
    health.set_state(State.ACTIVE)
    assert health.ready().word == "ok"
    store.failed()
    clock.now_s += 29
    store.failed()
    assert (health.ready().ok, health.ready().word) == (True, "degraded")
    clock.now_s += 1
    assert not health.ready().ok
    assert "30 s" in health.ready().word
    assert health.live().ok
    assert health.ready(frozenset({"store"})).ok
    store.succeeded()
    assert health.ready().word == "ok"


def test_a_silent_loop_takes_liveness(clock: FakeClock) -> None:
    health = Health(clock)
    beat = health.watch("poll", max_age_s=30)
    clock.now_s += 31
    assert not health.live().ok
    beat()
    assert health.live().ok
    clock.now_s += 31
    health.unwatch("poll")
    assert health.live().ok


def test_a_dead_task_takes_both(clock: FakeClock) -> None:
    health = Health(clock)
    health.set_state(State.ACTIVE)
    health.fail("corruption in wal 7")
    assert not health.live().ok
    assert not health.ready().ok


def test_the_first_bad_check_gives_the_word(clock: FakeClock) -> None:
    health = Health(clock)
    health.set_state(State.ACTIVE)
    health.add_ready_check("a", lambda: Verdict(ok=True, degraded=True, message="slow"))
    health.add_ready_check("b", lambda: Verdict(ok=False, message="full"))
    report = health.ready()
    assert (report.word, report.checks["a"].degraded) == ("full", True)
