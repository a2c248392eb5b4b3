"""``take_over=False``: a writer that seems to be alive keeps its database; a closed or dead one loses it."""

import pickle
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.engine.write.live_writer import RECENT_MS, LiveWriter, describe, require_no_live_writer
from shale.env import Env, InlineCpu
from shale.errors import FencedError
from shale.store.memory import MemoryStore
from shale.store.port import GetResult, ObjectMeta
from shale.types import Manifest, Seq, WalId
from shale.types.writer_sign import WriterPresence, writer_status
from tests.clocks import FixedClock
from tests.unit.engine.write.takeover.manifest_history import CLOSED, LIVE, sign, stored_history

SIGNED = replace(LIVE, checkpoints=(sign(4, expire_s=10_001),))
SILENT = replace(LIVE, checkpoints=(sign(4, expire_s=10_000),))
FLUSHED = replace(CLOSED, last_l0_seq=Seq(9))


class CountingStore(MemoryStore):
    """A store that counts the requests that read one object."""

    reads = 0

    async def get(self, key: str) -> GetResult | None:
        self.reads += 1
        return await super().get(key)

    async def head(self, key: str) -> ObjectMeta | None:
        self.reads += 1
        return await super().head(key)


class Place:
    """A database whose writers and store share a clock."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.store = CountingStore(self.clock)

    def open(self, **settings: Any) -> Any:
        env = Env(self.clock, Random(self.clock.at_ms), InlineCpu())
        return shale.Db.open("db", store=self.store, env=env, flush_interval=0, **settings)


def run(scenario: Callable[[Place], Awaitable[None]]) -> None:
    anyio.run(scenario, Place())


def test_a_writer_with_a_sign_of_life_is_not_fenced() -> None:
    async def scenario(place: Place) -> None:
        first = await place.open(writer_endpoint="http://a:1")
        with pytest.raises(LiveWriter, match=r"epoch 1 is running \(on host .+, since .+Z, at http://a:1, holder"):
            await place.open(take_over=False)
        await (await first.put(b"key", b"still the writer")).durable()
        async with place.open():
            pass
        with pytest.raises(FencedError, match=r"one writer.*HTTP API.*DbReader"):
            await (await first.put(b"key", b"fenced")).durable()

    run(scenario)


def test_the_error_tells_who_it_is() -> None:
    async def scenario(place: Place) -> None:
        async with place.open(writer_endpoint="http://a:1"):
            with pytest.raises(LiveWriter) as caught:
                await place.open(take_over=False)
        copied = pickle.loads(pickle.dumps(caught.value))
        assert str(copied) == str(caught.value)
        assert re.search(r"one writer.*HTTP API.*DbReader.* without a close, open with take_over=True", str(copied))
        status = copied.status
        assert (status.presence, status.epoch) == (WriterPresence.SIGNED, 1)
        assert status.identity is not None
        assert status.identity.endpoint == "http://a:1"
        assert caught.value.retryable

    run(scenario)


@pytest.mark.parametrize("later_ms", [0, RECENT_MS], ids=["at once", "later"])
@pytest.mark.parametrize("sign", [True, False], ids=["with a sign", "without one"])
def test_a_closed_database_is_opened(later_ms: int, sign: bool) -> None:
    """A close some time ago is known from the listing; right after it, one older version is read."""

    async def scenario(place: Place) -> None:
        reads = []
        for take_over in (True, True, False):
            place.store.reads = 0
            async with place.open(writer_checkpoint=sign, take_over=take_over) as db:
                reads.append(place.store.reads)
                await (await db.put(b"key", b"value")).durable()
            place.clock.at_ms += later_ms
        assert reads[2] - reads[1] == (0 if later_ms else 1)

    run(scenario)


def test_a_writer_whose_sign_has_expired_loses_the_database() -> None:
    async def scenario(place: Place) -> None:
        crashed = await place.open()
        place.clock.at_ms += 901_000
        async with place.open(take_over=False) as db:
            assert db.status.writer_epoch == 2
        with pytest.raises(FencedError):
            await (await crashed.put(b"key", b"value")).durable()

    run(scenario)


@pytest.mark.parametrize("flush", ["wal", "memtable"])
def test_a_writer_without_signs_keeps_the_database_while_it_writes(flush: str) -> None:
    """So do SlateDB's writers, which have no sign of life."""

    async def scenario(place: Place) -> None:
        first = await place.open(writer_checkpoint=False)
        await first.put(b"key", b"value")
        await first.flush(flush)
        with pytest.raises(LiveWriter, match="epoch 1 wrote 0 s ago and did not close"):
            await place.open(take_over=False)
        place.clock.at_ms += RECENT_MS
        if flush == "wal":
            await first.put(b"key", b"a WAL file that is newer than every manifest")
            await first.flush("wal")
            with pytest.raises(LiveWriter):
                await place.open(take_over=False)
            place.clock.at_ms += RECENT_MS
        async with place.open(take_over=False) as second:
            assert second.status.writer_epoch == 2
        with pytest.raises(FencedError):
            await (await first.put(b"key", b"value")).durable()

    run(scenario)


def test_a_new_database_has_no_writer() -> None:
    async def scenario(place: Place) -> None:
        async with place.open(take_over=False) as db:
            assert db.status.writer_epoch == 1

    run(scenario)


NOW_MS = 10_000_000


@pytest.mark.parametrize(
    ("versions", "last_wal_id", "manifest_ms", "wal_ms", "says"),
    [
        pytest.param([Manifest()], 99, NOW_MS, NOW_MS, None, id="never a writer"),
        pytest.param([LIVE, CLOSED], 8, NOW_MS, NOW_MS, None, id="just closed"),
        pytest.param([SILENT], 6, NOW_MS, NOW_MS, None, id="the sign has expired"),
        pytest.param([SIGNED], 6, 0, 0, "is running", id="the sign has not expired"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS - 1000, NOW_MS - RECENT_MS, "wrote 1 s ago", id="a version"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS - RECENT_MS, NOW_MS - 1999, "wrote 1 s ago", id="a WAL file"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS - RECENT_MS, NOW_MS - RECENT_MS + 1, "wrote 599 s ago", id="recent"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS - RECENT_MS, NOW_MS - RECENT_MS, None, id="just not recent"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS - RECENT_MS, None, None, id="the WAL file is gone"),
        pytest.param([LIVE, CLOSED], 9, None, None, "wrote 0 s ago", id="no time is known"),
        pytest.param([LIVE, CLOSED], 9, NOW_MS + 5000, None, "wrote 0 s ago", id="the store's clock is ahead"),
        pytest.param([LIVE, CLOSED, FLUSHED], 8, NOW_MS, None, "wrote 0 s ago", id="a flush after the close"),
        pytest.param([LIVE, CLOSED, FLUSHED], 8, NOW_MS - RECENT_MS, None, None, id="a flush some time ago"),
        pytest.param([CLOSED], 8, NOW_MS, None, None, id="unknown: the versions were collected"),
    ],
)
def test_which_writer_seems_to_be_alive(
    versions: list[Manifest], last_wal_id: int, manifest_ms: int | None, wal_ms: int | None, says: str | None
) -> None:
    async def scenario() -> None:
        stored = await stored_history(*versions, modified_ms=manifest_ms)
        asked: list[int] = []

        async def wal_time(wal_id: WalId) -> int | None:
            asked.append(wal_id)
            return wal_ms

        async def require() -> None:
            await require_no_live_writer(stored, WalId(last_wal_id), now_ms=NOW_MS, wal_time=wal_time)

        if says is None:
            await require()
        else:
            with pytest.raises(LiveWriter, match=says) as caught:
                await require()
            assert caught.value.status == writer_status(stored.value, NOW_MS)
        assert asked in ([], [last_wal_id])
        assert bool(asked) == (last_wal_id == 9)

    anyio.run(scenario)


@pytest.mark.parametrize(
    ("fields", "expire_s", "text"),
    [
        ("", 0, "on host unknown, since 1970-01-01T00:00:50Z, its sign of life expires at 1970-01-01T00:00:00Z"),
        (
            "host=a&since=86400&endpoint=http://b&holder=c",
            90_000,
            "on host a, since 1970-01-02T00:00:00Z, at http://b, holder c, "
            "its sign of life expires at 1970-01-02T01:00:00Z",
        ),
    ],
)
def test_what_is_told_about_a_writer(fields: str, expire_s: int, text: str) -> None:
    manifest = replace(LIVE, checkpoints=(sign(4, expire_s=expire_s, fields=fields),))
    assert describe(writer_status(manifest, 0)) == f"writer epoch 4 is running ({text})"
    assert describe(writer_status(CLOSED, 0)) == "writer epoch 4"
