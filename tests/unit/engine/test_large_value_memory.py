"""Reads of large values share a budget and never wait for each other for ever."""

import os
from pathlib import Path

import anyio
import pytest

import shale
from shale.concurrency.byte_budget import ByteBudget, TaskShares
from shale.errors import UnavailableError
from shale.sst.budget import MemoryBudget
from shale.store.local_store.adapter import LocalStore

pytestmark = pytest.mark.anyio
MIB = 1 << 20
OPERAND = os.urandom(2 * MIB)


def concatenate(_key: bytes, existing: bytes | None, operands: list[bytes]) -> bytes:
    return b"".join((existing or b"", *operands))


async def test_reads_of_merged_values_end(tmp_path: Path) -> None:
    """Each needs blocks of several SSTs: a read that kept the memory of one while it waited for the next would stop."""
    keys = [b"a", b"b", b"c", b"d"]
    async with shale.Db.open("db", store=LocalStore(tmp_path), merge_operator=concatenate) as db:
        for _ in range(3):
            for key in keys:
                await db.merge(key, OPERAND)
            await db.flush("memtable")
    budget = ByteBudget(8 * MIB)
    cache = MemoryBudget(MIB, large_values=TaskShares(budget))
    async with shale.DbReader.open("db", store=LocalStore(tmp_path), merge_operator=concatenate, cache=cache) as reader:
        found: dict[bytes, bytes | None] = {}

        async def read(key: bytes) -> None:
            found[key] = await reader.get(key)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for key in keys:
                    tasks.start_soon(read, key)
    assert found == dict.fromkeys(keys, 3 * OPERAND)
    assert budget.used_bytes == 0


async def test_a_wait_for_memory_has_an_end() -> None:
    budget = ByteBudget(8 * MIB)
    memory = MemoryBudget(large_values=TaskShares(budget, wait_max_s=0.05))
    await budget.take(8 * MIB)
    with pytest.raises(UnavailableError, match="no memory for 6291456 bytes of values"):
        await memory.admit(2 * MIB)
    assert not budget.is_contended
    budget.give_back(8 * MIB)
    await memory.admit(2 * MIB)
    assert budget.used_bytes == 6 * MIB
