"""Failing writes are known by path, cause and duration, whether they are repeated or given up."""

import random
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from shale.core.bytes_like import BytesLike
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import AccessDenied, AlreadyExists, ShaleError
from shale.service.health import writes_check
from shale.store import retry
from shale.store.adapter_errors import RequestFailed
from shale.store.failing_writes import GIVEN_UP_S, FailingWrites
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import CREATE, ETag
from shale.store.retry import SINGLE_PUT_BYTES, RetryingStore
from shale.telemetry.error_types import ErrorType

pytestmark = pytest.mark.anyio

FULL = RequestFailed("file:///d/db/wal/1.sst: No space left on device", ErrorType.INTERNAL)
BUSY = RequestFailed("s3://b/db/wal/1.sst: slow down", ErrorType.THROTTLE)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Watch(SystemClock):
    """Stands still unless a test moves it."""

    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


class FullStore(MemoryStore):
    """Refuses the next writes, and answers every read."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[ShaleError] = []

    async def put(self, *args: object, **options: object) -> ETag | None:
        if self.failures:
            raise self.failures.pop(0)
        return await super().put(*args, **options)  # type: ignore[arg-type]

    async def put_stream(self, *args: object) -> None:
        if self.failures:
            raise self.failures.pop(0)
        await super().put_stream(*args)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Watch:
    return Watch()


@pytest.fixture
def writes(clock: Watch, monkeypatch: pytest.MonkeyPatch) -> FailingWrites:
    async def sleep(delay_s: float) -> None:
        clock.now_s += delay_s

    monkeypatch.setattr(retry.anyio, "sleep", sleep)
    return FailingWrites(clock)


def _retrying(store: MemoryStore, clock: Watch, writes: FailingWrites, **policy: int) -> RetryingStore:
    env = Env(clock, random.Random(1), InlineCpu())
    return RetryingStore(store, env, RetryPolicy(**policy), writes=writes)


def _events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    lines = [(record.levelname, record.msg) for record in caplog.records if isinstance(record.msg, dict)]
    return [(level, line["event"]) for level, line in lines if "writes" in line["event"] or "path" in line]


async def test_a_write_that_is_repeated_fails_until_it_is_taken(
    clock: Watch, writes: FailingWrites, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "shale")
    full = FullStore()
    full.failures = [FULL] * 50
    seen: list[float] = []

    class Observed(FullStore):
        async def put(self, *args: object, **options: object) -> ETag | None:
            seen.append(writes.failing_s())
            writes.report(15)
            return await full.put(*args, **options)

    await _retrying(Observed(), clock, writes).put("db/wal/1.sst", b"x", mode=CREATE)
    assert seen[0] == 0
    assert seen[-1] > 40, "from the first failure on"
    assert writes.oldest() is None
    assert writes.failing_s() == 0
    assert _events(caplog) == [
        ("WARNING", "store.request.failing"),
        ("ERROR", "store.writes.failing"),
        ("INFO", "store.writes.recovered"),
    ]
    warning, error = (record.msg for record in caplog.records if "path" in record.msg and record.levelno > 20)
    assert isinstance(warning, dict)
    assert isinstance(error, dict)
    assert warning["path"] == error["path"] == "memory:///db/wal/1.sst"
    assert "No space left on device" in str(warning["error"])


async def test_an_error_that_often_passes_is_told_of_when_it_comes_again(
    clock: Watch, writes: FailingWrites, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "shale")
    store = FullStore()
    store.failures = [BUSY]
    await _retrying(store, clock, writes).put("db/wal/1.sst", b"x")
    assert _events(caplog) == []
    store.failures = [BUSY, BUSY]
    await _retrying(store, clock, writes).put("db/wal/2.sst", b"x")
    assert [level for level, _ in _events(caplog)] == ["WARNING", "INFO"]


async def test_a_conflict_is_an_answer(clock: Watch, writes: FailingWrites) -> None:
    store = FullStore()
    store.failures = [FULL, AlreadyExists("1.manifest exists")]
    with pytest.raises(AlreadyExists):
        await _retrying(store, clock, writes).put("db/manifest/1.manifest", b"x", mode=CREATE)
    assert writes.oldest() is None


async def _parts() -> AsyncIterator[BytesLike]:
    for _ in range(3):
        yield bytes(SINGLE_PUT_BYTES // 2)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.put_stream("db/compacted/A.sst", _parts()), id="a stream"),
        pytest.param(lambda store: store.put("db/compacted/A.sst", b"x"), id="the last retry"),
    ],
)
@pytest.mark.parametrize("error", [FULL, AccessDenied("403")])
async def test_a_write_that_was_given_up_counts_until_one_beside_it_succeeds(
    write: Callable[[RetryingStore], object], error: ShaleError, clock: Watch, writes: FailingWrites
) -> None:
    store = FullStore()
    retrying = _retrying(store, clock, writes, retries_max=0)
    store.failures = [error]
    with pytest.raises(ShaleError):
        await write(retrying)  # type: ignore[misc]
    clock.now_s += 20
    assert writes.failing_s() == 20
    store.failures = [error]
    with pytest.raises(ShaleError):
        await retrying.put("db/compacted/B.sst", b"x")
    clock.now_s += 20
    assert writes.failing_s() == 40, "another object in the same folder: the same trouble"
    await retrying.put("db/wal/1.sst", b"x")
    assert writes.failing_s() == 40, "another folder"
    await retrying.put("db/compacted/C.sst", b"x")
    assert writes.failing_s() == 0


async def test_a_write_that_nothing_tries_again_is_forgotten(clock: Watch, writes: FailingWrites) -> None:
    store = FullStore()
    store.failures = [FULL]
    with pytest.raises(ShaleError):
        await _retrying(store, clock, writes, retries_max=0).put("db/compacted/A.sst", b"x")
    clock.now_s += GIVEN_UP_S + 1
    assert writes.oldest() is None


async def test_a_cancelled_write_is_forgotten(clock: Watch, writes: FailingWrites) -> None:
    class Endless(FullStore):
        async def put(self, *args: object, **options: object) -> ETag | None:
            if writes.oldest() is not None:
                scope.cancel()
                await anyio.sleep_forever()
            raise FULL

    with anyio.CancelScope() as scope:
        await _retrying(Endless(), clock, writes).put("db/wal/1.sst", b"x")
    assert writes.oldest() is None


@pytest.mark.parametrize(("required", "ready"), [(True, False), (False, True)])
async def test_failing_writes_end_readiness_after_the_grace(clock: Watch, required: bool, ready: bool) -> None:
    """A reader serves what it has, also while it cannot renew its checkpoint."""
    writes = FailingWrites(clock)
    check = writes_check(writes, 15, required=required)
    assert (check().ok, check().degraded) == (True, False)
    writes.failed("file:///d/db/wal/1.sst", FULL)
    clock.now_s += 14
    assert (check().ok, check().degraded) == (True, True)
    clock.now_s += 1
    assert (check().ok, check().degraded) == (ready, True)
    assert "15 s: file:///d/db/wal/1.sst: No space left on device" in check().message
    writes.ended("file:///d/db/wal/1.sst", None)
    assert (check().ok, check().degraded) == (True, False)
