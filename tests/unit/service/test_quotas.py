"""Quotas of tokens: buckets, roles and changed rates."""

import pytest
from pydantic import ValidationError

from shale.core.token_bucket import TokenBucket
from shale.service.access import RETRY_AFTER_MAX_S, Quotas, Rates, Role
from shale.service.config.access.quotas_section import QuotaSection, QuotasSection
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock


def taken(bucket: TokenBucket, now_s: float) -> int:
    """Take one by one until the bucket is empty."""
    count = 0
    while bucket.wait_s(now_s) is None:
        bucket.take(1)
        count += 1
    return count


def test_a_bucket_holds_one_second_and_is_refilled() -> None:
    bucket = TokenBucket(4, 100.0)
    assert [taken(bucket, now_s) for now_s in (100.0, 100.0, 100.5, 101.0, 200.0)] == [4, 0, 2, 2, 4]


def test_a_bucket_without_a_rate_is_never_empty() -> None:
    bucket = TokenBucket(0, 1.0)
    bucket.take(1e9)
    assert bucket.wait_s(1.0) is None


def test_a_use_larger_than_the_bucket_is_repaid_before_the_next() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.take(110)
    assert bucket.wait_s(0.0) == 10.0
    assert bucket.wait_s(9.5) == 0.5
    assert bucket.wait_s(10.5) is None


def test_a_rate_below_one_admits_one_and_then_waits() -> None:
    bucket = TokenBucket(0.25, 0.0)
    assert taken(bucket, 0.0) == 1
    assert bucket.wait_s(0.0) == 3.0
    assert [taken(bucket, now_s) for now_s in (2.5, 3.5)] == [0, 1]


def test_a_changed_rate_keeps_what_was_used() -> None:
    bucket = TokenBucket(4, 0.0)
    bucket.take(4)
    bucket.set_rate(4, 0.0)
    assert bucket.wait_s(0.0) is not None
    bucket.set_rate(0, 0.0)
    assert bucket.wait_s(0.0) is None
    bucket.set_rate(8, 0.0)
    assert taken(bucket, 0.0) == 8
    bucket.set_rate(2, 10.0)
    assert taken(bucket, 10.0) == 2


def refusals(metrics: Metrics) -> dict[str, float]:
    counters = {role.label: metrics.counter("shale_quota_refusals_total", role=role.label) for role in Role}
    return {label: counter.value for label, counter in counters.items()}


def test_each_token_has_its_own_quota_and_clients_without_one_share_that_of_a_role() -> None:
    metrics = Metrics()
    quotas = Quotas(ManualClock(), metrics, {Role.WRITE: Rates(requests=0.001)})
    callers = [(Role.WRITE, b"a"), (Role.WRITE, b"b"), (Role.WRITE, None), (Role.READ, b"r"), (Role.ADMIN, None)]
    assert [quotas.of(*caller).admit() for caller in callers] == [None] * 5
    assert [quotas.of(*caller).admit() for caller in callers] == [999, 999, 999, None, None]
    assert refusals(metrics) == {"read": 0, "write": 3, "admin": 0}


def test_a_refused_request_waits_for_the_bucket_that_is_full_last() -> None:
    clock = ManualClock()
    quota = Quotas(clock, Metrics(), {Role.READ: Rates(requests=2, size_bytes=10)}).of(Role.READ, b"r")
    for _ in range(2):
        assert quota.admit() is None
    assert quota.admit() == 1
    quota.take_bytes(52)
    assert quota.admit() == 5
    clock.sleep(4.5)
    assert quota.admit() is None


def test_the_pause_is_bounded() -> None:
    quota = Quotas(ManualClock(), Metrics(), {Role.READ: Rates(requests=5e-324)}).of(Role.READ, b"r")
    assert (quota.admit(), quota.admit()) == (None, RETRY_AFTER_MAX_S)


def test_a_reload_changes_the_quotas_of_tokens_that_were_used() -> None:
    quotas = Quotas(ManualClock(), Metrics())
    quota = quotas.of(Role.WRITE, b"w")
    assert not quotas.is_limiting
    assert [quota.admit() for _ in range(3)] == [None] * 3
    quotas.replace(QuotasSection(write=QuotaSection(requests_per_second=1)).rates())
    assert quotas.is_limiting
    assert quotas.of(Role.WRITE, b"w") is quota
    assert [quota.admit() for _ in range(2)] == [None, 1]
    quotas.replace(QuotasSection().rates())
    assert not quotas.is_limiting
    assert quota.admit() is None


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["requests_per_second", "bytes_per_second"])
def test_a_quota_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        QuotaSection(**{name: value})
