"""Failed attempts and connections are limited by address, in bounded memory."""

import pytest

from shale.core.address_limits import ADDRESSES_MAX, ConnectionCounts, FailedAttempts, network_of


def test_an_address_has_its_attempts_of_a_minute() -> None:
    attempts = FailedAttempts(60)
    assert [attempts.failed("10.0.0.1", 0.0) for _ in range(60)] == [None] * 60
    assert attempts.failed("10.0.0.1", 0.0) == 1
    assert attempts.failed("10.0.0.2", 0.0) is None, "another address"
    assert attempts.failed("10.0.0.1", 1.0) is None, "one per second comes back"
    assert attempts.failed("10.0.0.1", 1.0) == 1
    assert attempts.failed("10.0.0.1", 3601.0) is None
    assert FailedAttempts(1).failed("a", 0.0) is None


def test_a_low_limit_tells_how_long_to_wait() -> None:
    attempts = FailedAttempts(2)
    assert [attempts.failed("a", 0.0) for _ in range(3)] == [None, None, 30]
    assert attempts.failed("a", 29.0) == 1
    assert attempts.failed("a", 30.0) is None


def test_without_a_limit_nothing_is_kept() -> None:
    attempts = FailedAttempts(0)
    assert [attempts.failed("a", 0.0) for _ in range(1000)] == [None] * 1000
    assert len(attempts) == 0


def test_the_table_of_addresses_is_bounded() -> None:
    attempts = FailedAttempts(1)
    for number in range(ADDRESSES_MAX + 100):
        attempts.failed(f"10.0.{number >> 8}.{number & 255}", 0.0)
    assert len(attempts) == ADDRESSES_MAX
    assert attempts.failed("10.0.0.0", 0.0) is None, "forgotten first"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:0db8:0000:0000"),
        ("2001:db8::ffff:1", "2001:0db8:0000:0000"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_what_one_client_has(address: str, network: str) -> None:
    assert network_of(address) == network


def test_connections_of_an_address() -> None:
    counts = ConnectionCounts(2)
    assert [counts.opened("a") for _ in range(3)] == [True, True, False]
    assert counts.opened("b")
    counts.closed("a")
    assert not counts.opened("a")
    for _ in range(3):
        counts.closed("a")
    counts.closed("b")
    assert [counts.opened("a") for _ in range(3)] == [True, True, False], "as at the beginning"


def test_connections_of_an_ipv6_network_count_together() -> None:
    counts = ConnectionCounts(2)
    assert [counts.opened(f"2001:db8::{number:x}") for number in range(3)] == [True, True, False]
    assert counts.opened("2001:db8:0:1::1")
    assert counts.opened("::ffff:192.0.2.1")
    assert counts.opened("192.0.2.1")
    assert not counts.opened("::ffff:192.0.2.1")
    counts.closed("2001:db8::2")
    counts.closed("2001:db8::1")
    assert counts.opened("2001:db8::9")
