"""Scans hold a block of each source, so those of large values share memory of their own."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import shale
from shale.concurrency.byte_budget import ByteBudget, TaskShares
from shale.engine.scan import chunk_reader
from shale.errors import UnavailableError
from shale.sst.budget import MemoryBudget
from shale.store.local_store.adapter import LocalStore

pytestmark = pytest.mark.anyio
MIB = 1 << 20
L0S = 3
KEYS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def rows(tmp_path: Path) -> dict[bytes, bytes]:
    """Write a database whose L0s overlap: small rows, and values of which no block has two."""
    newest = {key: os.urandom(2 * MIB) for key in KEYS} | {b"small%03d" % number: b"1" for number in range(100)}
    async with shale.Db.open("db", store=LocalStore(tmp_path), compactor=False, gc=False) as db:
        for number in range(L0S):
            for key, value in newest.items():
                await db.put(key, value if number == L0S - 1 else bytes(value[:100]) * (len(value) // 100))
            await db.flush("memtable")
    return dict(sorted(newest.items()))


@asynccontextmanager
async def reader(path: Path, shares: TaskShares) -> AsyncIterator[shale.DbReader]:
    cache = MemoryBudget(MIB, scanned_values=shares)
    async with shale.DbReader.open("db", store=LocalStore(path), cache=cache) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 3}, {"start": b"b", "stop": b"small050"}])
@pytest.mark.parametrize("capacity_mib", [1, 1000])
async def test_a_scan_takes_memory_for_a_block_of_each_source_and_gives_it_back(
    tmp_path: Path, rows: dict[bytes, bytes], options: dict[str, Any], capacity_mib: int
) -> None:
    budget = ByteBudget(capacity_mib * MIB)
    async with reader(tmp_path, TaskShares(budget)) as db:
        with anyio.fail_after(60):
            scan = db.scan(**options)
            first = await anext(scan)
            if first.key in KEYS:
                assert budget.used_bytes >= L0S * 2 * MIB
            found = [(first.key, first.value), *[(row.key, row.value) async for row in scan]]
    begin, stop = options.get("start", b""), options.get("stop", b"\xff")
    wanted = [item for item in rows.items() if begin <= item[0] < stop]
    assert found == (wanted[::-1] if "reverse" in options else wanted)[: options.get("limit")]
    assert budget.used_bytes == 0


async def test_scans_of_large_values_follow_one_another_and_none_of_small_rows_waits(
    tmp_path: Path, rows: dict[bytes, bytes]
) -> None:
    budget, most = ByteBudget(MIB), 0
    found: list[list[bytes]] = [[] for _ in range(4)]
    async with reader(tmp_path, TaskShares(budget)) as db:
        alone = db.scan()
        await anext(alone)
        used_bytes = budget.used_bytes
        assert len(await db.scan(prefix=b"small").next_batch(1000)) == 100
        alone.close()

        async def scan(keys: list[bytes]) -> None:
            nonlocal most
            async for row in db.scan():
                most = max(most, budget.used_bytes)
                assert row.value == rows[row.key]
                keys.append(row.key)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for keys in found:
                    tasks.start_soon(scan, keys)
    assert most == used_bytes, "there was room for one scan at a time"
    assert found == [list(rows)] * len(found)
    assert budget.used_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_scan_that_pauses_keeps_its_memory_until_its_task_gives_it_back(
    tmp_path: Path, rows: dict[bytes, bytes], is_kept: bool
) -> None:
    budget, found = ByteBudget(MIB), list[bytes]()
    shares = TaskShares(budget, wait_max_s=0.05)
    async with reader(tmp_path, shares) as db:
        paused = db.scan()
        found.append((await anext(paused)).key)
        paused.release()
        if not is_kept:
            shares.release()
        failures: list[UnavailableError] = []

        async def other() -> None:
            try:
                assert (await anext(db.scan(start=b"b"))).value == rows[b"b"]
            except UnavailableError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
        assert len(failures) == is_kept
        found += [row.key async for row in paused]
    assert found == list(rows)
    assert budget.used_bytes == 0


@pytest.fixture(params=["none", "zstd"])
async def mixed_rows(tmp_path: Path, request: pytest.FixtureRequest) -> dict[bytes, bytes]:
    """Write a database with a small row before and after each large value, in overlapping L0s."""
    newest = dict[bytes, bytes]()
    for key in KEYS:
        value = os.urandom(3 * MIB) if request.param == "none" else key * (3 * MIB)
        newest |= {key + b"0": b"1", key + b"1": value, key + b"2": b"1"}
    options: Any = {"compression": request.param, "compactor": False, "gc": False}
    async with shale.Db.open("db", store=LocalStore(tmp_path), **options) as db:
        for _ in range(L0S):
            for key, value in newest.items():
                await db.put(key, value)
            await db.flush("memtable")
    return newest


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 5}, {"reverse": True, "limit": 5}])
async def test_a_large_value_beside_small_rows_takes_memory(
    tmp_path: Path, mixed_rows: dict[bytes, bytes], options: dict[str, Any]
) -> None:
    budget = ByteBudget(1000 * MIB)
    async with reader(tmp_path, TaskShares(budget)) as db:
        found = list[tuple[bytes, bytes]]()
        async for row in db.scan(**options):
            found.append((row.key, row.value))
            if len(row.value) > MIB:
                assert budget.used_bytes >= L0S * len(row.value)
    wanted = list(mixed_rows.items())
    assert found == (wanted[::-1] if "reverse" in options else wanted)[: options.get("limit")]


async def test_a_scan_lets_others_go_on_after_its_turn(
    tmp_path: Path, rows: dict[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may be slow, and take longer for all rows than the others may wait."""
    monkeypatch.setattr(chunk_reader, "TURN_S", 0.0)
    found = list[tuple[int, bytes]]()
    async with reader(tmp_path, TaskShares(ByteBudget(MIB))) as db:

        async def scan(number: int) -> None:
            async for row in db.scan():
                found.append((number, row.key))
                if row.key in KEYS:
                    await anyio.wait_all_tasks_blocked()  # until the other one waits for memory

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(2):
                    tasks.start_soon(scan, number)
    assert [key for number, key in found if number == 0] == [key for number, key in found if number == 1] == list(rows)
    assert [number for number, key in found if key in KEYS] == [0, 1] * len(KEYS)


async def test_a_scan_needs_memory_of_one_kind_only(tmp_path: Path, rows: dict[bytes, bytes]) -> None:
    """Two that waited for each other's, one for that of scans and one for that of lookups, would never end."""
    lookups = ByteBudget(MIB)
    scanned = TaskShares(ByteBudget(MIB))
    cache = MemoryBudget(MIB, large_values=TaskShares(lookups), scanned_values=scanned)
    async with shale.DbReader.open("db", store=LocalStore(tmp_path), cache=cache) as db:
        await lookups.take(MIB)
        with anyio.fail_after(20):
            assert [row.key async for row in db.scan(limit=len(rows), read_ahead_bytes=64 << 10)] == list(rows)
            assert [row.key async for row in db.scan()] == list(rows)
