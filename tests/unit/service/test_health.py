"""Health follows the table of docs/reference/health.md."""

import pytest

from shale.env import Clock
from shale.service.health import Health, HealthCheckResult, ServiceState, StoreReachability
from shale.telemetry.metrics import Metrics


class FakeClock(Clock):
    """A clock that only the test advances."""

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
        (ServiceState.STARTING, False, "starting"),
        (ServiceState.ACTIVE, True, "ok"),
        (ServiceState.STANDBY, False, "standby"),
        (ServiceState.FENCED, False, "fenced"),
        (ServiceState.DRAINING, False, "draining"),
        (ServiceState.FAILED, False, "failed"),
    ],
)
def test_readiness_follows_the_state_and_liveness_does_not(
    clock: FakeClock, state: ServiceState, ready: bool, word: str
) -> None:
    health = Health(clock)
    health.set_state(state)
    assert (health.ready().ok, health.ready().word) == (ready, word)
    assert health.live().ok


def test_startup_stays_true_once_it_was_active(clock: FakeClock) -> None:
    health = Health(clock)
    assert not health.startup().ok
    health.set_state(ServiceState.ACTIVE)
    health.set_state(ServiceState.DRAINING)
    assert health.startup().ok


def test_fenced_is_final_and_only_a_fence_ends_draining(clock: FakeClock) -> None:
    health = Health(clock)
    health.set_state(ServiceState.DRAINING)
    health.set_state(ServiceState.ACTIVE)
    assert health.state is ServiceState.DRAINING
    health.set_state(ServiceState.FENCED)
    health.set_state(ServiceState.ACTIVE)
    assert health.state is ServiceState.FENCED


def test_a_short_trouble_degrades_and_a_long_one_takes_readiness(clock: FakeClock) -> None:
    up = Metrics().gauge("slatedb_object_store_up", component="writer")
    health, store = Health(clock), StoreReachability(clock, grace_s=30, up=up)
    health.add_ready_check("store", store.check)
    health.set_state(ServiceState.ACTIVE)
    assert health.ready().word == "ok"
    store.succeeded()
    assert up.value == 1
    store.failed()
    assert up.value == 0
    clock.now_s += 29
    store.failed()
    assert (health.ready().ok, health.ready().word) == (True, "degraded")
    clock.now_s += 1
    assert not health.ready().ok
    assert "30 s" in health.ready().word
    assert health.live().ok
    assert health.ready(frozenset({"store"})).ok
    store.succeeded()
    assert up.value == 1
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
    health.set_state(ServiceState.ACTIVE)
    health.fail("corruption in wal 7")
    assert not health.live().ok
    assert not health.ready().ok


def test_the_first_bad_check_gives_the_word(clock: FakeClock) -> None:
    health = Health(clock)
    health.set_state(ServiceState.ACTIVE)
    health.add_ready_check("a", lambda: HealthCheckResult(ok=True, degraded=True, message="slow"))
    health.add_ready_check("b", lambda: HealthCheckResult(ok=False, message="full"))
    report = health.ready()
    assert (report.word, report.checks["a"].degraded) == ("full", True)
