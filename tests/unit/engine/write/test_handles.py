"""Write handles and batch contexts: what they do, and what a wrong use is told."""

import gc
import pickle
import warnings

import anyio
import pytest

from shale.engine.write.batch import WriteBatch
from shale.engine.write.batch_context import BatchContext
from shale.engine.write.write_handle import WriteHandle
from shale.errors import NotOpen, WrongType


class Waiter:
    """A ``DurabilityWaiter`` that records for what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def durable(self, seq: int) -> None:
        self.asked.append(seq)


def test_a_handle_waits_for_its_own_number() -> None:
    async def scenario() -> None:
        waiter = Waiter()
        handle = WriteHandle(7, 1000, waiter)
        assert (handle.seq, handle.create_ts) == (7, 1000)
        await handle.durable()
        assert waiter.asked == [7]
        with pytest.raises(WrongType, match="a write handle was awaited"):
            await handle
        with pytest.raises(TypeError, match="cannot be pickled: its seq can"):
            pickle.dumps(handle)

    anyio.run(scenario)


class Writes:
    """What a context has written."""

    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []

    async def write(self, batch: WriteBatch) -> None:
        self.batches.append(batch)


def test_the_end_of_a_block_writes_what_it_has_added() -> None:
    async def scenario() -> None:
        writes = Writes()
        async with BatchContext(WriteBatch(), writes.write) as batch:
            batch.put(b"k", b"v")
            assert not writes.batches
        assert writes.batches == [batch]
        async with BatchContext(WriteBatch(), writes.write):
            pass
        assert writes.batches == [batch], "an empty batch is not written"
        discarded = BatchContext(WriteBatch(), writes.write)
        (await discarded.__aenter__()).put(b"k", b"v")
        error = ValueError("mine")
        assert not await discarded.__aexit__(type(error), error, None)
        assert writes.batches == [batch]

    anyio.run(scenario)


def test_a_context_that_is_used_otherwise_says_how_to_use_it() -> None:
    """The error says it all, so there is no warning, too."""

    async def scenario() -> None:
        def context() -> BatchContext:
            return BatchContext(WriteBatch(), Writes().write)

        with pytest.raises(WrongType, match=r"write `async with db.batch\(\) as batch:`, or use db.new_batch"):
            await context()
        with pytest.raises(NotOpen, match=r"is not open yet.*: write `async with db.batch\(\) as batch:`$"):
            _ = context().put
        async with context():
            pass
        gc.collect()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        anyio.run(scenario)
    assert not [each for each in caught if issubclass(each.category, RuntimeWarning)]


def test_a_context_that_is_dropped_is_reported() -> None:
    with pytest.warns(RuntimeWarning, match=r"db.batch\(\) was never awaited"):
        BatchContext(WriteBatch(), Writes().write)
