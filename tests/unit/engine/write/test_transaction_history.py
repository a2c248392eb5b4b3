"""What transactions need to find conflicts is bounded, and held by nothing else."""

import gc
import weakref

import anyio
import pytest

import shale
from shale.errors import TransactionConflict
from shale.store.memory import MemoryStore

MANY_L0 = {"l0_max_ssts": 100, "l0_max_ssts_per_key": 100}


def test_the_oldest_transactions_are_lost_beyond_the_limit_and_only_they() -> None:
    async def run() -> None:
        options = {"max_transaction_history_bytes": 4096, "flush_interval": None, **MANY_L0}
        async with shale.Db.open("db", store=MemoryStore(), **options) as db:
            await db.put(b"own", b"0")
            old, reading = await db.transaction(), await db.transaction()
            for number in range(300):
                await db.put(b"key-%06d" % number, bytes(100))
                if number % 50 == 49:
                    await db.flush("memtable")
                if number == 249:
                    young = await db.transaction()
            old.put(b"mine", b"1")
            young.put(b"yours", b"1")
            assert await old.get(b"own") == b"0"
            with pytest.raises(TransactionConflict, match="max_transaction_history_bytes = 4096"):
                await old.commit()
            assert await reading.commit() is None
            await young.commit()
            assert await db.get_many([b"mine", b"yours"]) == [None, b"1"]

    anyio.run(run)


def test_a_key_that_is_written_again_and_again_costs_once() -> None:
    async def run() -> None:
        options = {"max_transaction_history_bytes": 4096, "flush_interval": None, **MANY_L0}
        async with shale.Db.open("db", store=MemoryStore(), **options) as db:
            old = await db.transaction()
            for number in range(600):
                await db.put(b"key-%06d" % (number % 20), bytes(100))
                if number % 50 == 49:
                    await db.flush("memtable")
            old.put(b"mine", b"1")
            await old.commit()
            other = await db.transaction()
            await db.put(b"key-000003", b"1")
            await db.flush("memtable")
            other.put(b"key-000003", b"2")
            with pytest.raises(TransactionConflict, match="wrote what the transaction relies on"):
                await other.commit()

    anyio.run(run)


@pytest.mark.parametrize("kind", ["snapshot", "transaction"])
def test_an_idle_snapshot_or_transaction_pins_no_memtable(kind: str) -> None:
    """An old view would hold memory that is in no budget any more."""

    async def run() -> None:
        async with shale.Db.open("db", store=MemoryStore(), flush_interval=None) as db:
            await db.put(b"k", b"1")
            resting = await (db.snapshot() if kind == "snapshot" else db.transaction())
            assert await resting.get(b"k") == b"1"
            view = weakref.ref(db._writer.views.view.tables[0].log.seqs)
            await db.put(b"k", b"2")
            await db.flush("memtable")
            gc.collect()
            assert view() is None
            assert await resting.get(b"k") == b"1"
            await resting.close()

    anyio.run(run)
