"""``take_over=False``: a writer that seems to be alive keeps its database; a closed or dead one loses it."""

import pickle
import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.engine.write.live_writer import RECENT_MS, LiveWriter
from shale.env import Env, InlineCpu
from shale.errors import FencedError
from shale.store.memory import MemoryStore
from shale.store.port import GetResult, ObjectMeta
from shale.types.writer_sign import WriterPresence
from tests.clocks import FixedClock


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
