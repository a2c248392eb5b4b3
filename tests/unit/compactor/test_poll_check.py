"""Readiness of a polling loop: three missed intervals, and at least five seconds."""

from shale_compactor.poll_check import poll_check
from tests.unit.compactor.harness import ManualClock


def test_ready_until_three_intervals_are_missed() -> None:
    clock = ManualClock()
    last: list[float | None] = [None]
    check = poll_check(clock, lambda: last[0], interval_s=10.0)
    clock.advance(29)
    assert check().ok
    clock.advance(1)
    assert not check().ok
    assert "no poll for 30 s" in (check().message or "")
    last[0] = clock.monotonic_s()
    assert check().ok


def test_short_intervals_have_five_seconds() -> None:
    clock = ManualClock()
    check = poll_check(clock, lambda: None, interval_s=0.1)
    clock.advance(4)
    assert check().ok
    clock.advance(1)
    assert not check().ok
