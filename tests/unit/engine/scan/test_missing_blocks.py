"""Scans of a directory whose blocks are not in memory: the rows, what they read, what they keep, what goes wrong."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.core import open_file
from shale.engine.scan.scan import Scan
from shale.errors import CorruptionError
from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.kernels import dispatch
from shale.sst.disk_cache import DiskCacheOptions
from shale.store.local_store.adapter import LocalStore
from shale.telemetry.metrics import Metrics
from shale.types import Compression
from tests.plain_kernels import without_kernels

pytestmark = pytest.mark.anyio
KEYS = [b"%c%07d" % (b"abc"[number % 3], number) for number in range(3000)]
L0_COUNT = 4
# The kernel may refuse such a read of a page that it holds, for example while it writes that page to the disk.
ATTEMPTS = 5
Model = dict[bytes, bytes]


def concatenate(_key: bytes, existing: bytes | None, operands: list[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


async def fill(url: str, *, operands: bool = False, **options: Any) -> Model:
    """Write L0s with overlapping keys and return the rows."""
    rng, rows = Random(5), Model()
    async with shale.Db.open(url, flush_interval=None, merge_operator=concatenate, **options) as db:
        for number in range(L0_COUNT):
            batch = shale.WriteBatch()
            for key in rng.sample(KEYS, 1200):
                if rng.random() < 0.2:
                    rows.pop(key, None)
                    batch.delete(key)
                elif operands and rng.random() < 0.05:
                    rows[key] = rows.get(key, b"") + b"+"
                    batch.merge(key, b"+")
                else:
                    rows[key] = b"%d" % number * rng.randrange(1, 200)
                    batch.put(key, rows[key])
            await db.write(batch)
            await db.flush("memtable")
    return rows


def reader_of(directory: Path, **options: Any) -> Any:
    return shale.DbReader.open(f"file://{directory}/db", merge_operator=concatenate, **options)


def require_nowait(directory: Path) -> None:
    (directory / "probe").write_bytes(b"x")
    if open_file.LocalFiles().open(str(directory / "probe")) is None or not dispatch.use_kernels():
        pytest.skip("there are no reads that do not wait, or no kernels")


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SSTs of the reads that may wait."""
    keys: list[str] = []
    read = LocalStore.get_range

    async def recorded(store: LocalStore, key: str, start: int, end: int) -> memoryview | None:
        if ".sst" in key:
            keys.append(key)
        return await read(store, key, start, end)

    monkeypatch.setattr(LocalStore, "get_range", recorded)
    return keys


async def taken(scan: Scan, way: str) -> list[tuple[bytes, bytes]]:
    """Return the rows of a scan, taken in one of several ways."""
    if way == "rows":
        return [(row.key, row.value) async for row in scan]
    if way == "items":
        return [pair async for pairs in scan.items(100) for pair in pairs]
    if way == "mixed":
        return [pair async for pair in mixed(scan)]
    size = int(way)
    return [(row.key, row.value) async for rows in scan.batches(size) for row in rows]


async def mixed(scan: Scan) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the rows of a scan, batches and columns in turn."""
    while True:
        batch = await scan.next_batch(40)
        for row in batch:
            yield row.key, row.value
        rows = await scan.columns() if len(batch) == 40 else None
        for number in range(0 if rows is None else len(rows)):
            assert rows is not None
            yield rows.key(number), rows.value(number)
        if not batch and rows is None:
            return


def expected_of(rows: Model, *, reverse: bool, **bounds: Any) -> list[tuple[bytes, bytes]]:
    start, stop, limit = bounds.get("start"), bounds.get("stop"), bounds.get("limit")
    found = [
        row
        for row in sorted(rows.items(), reverse=reverse)
        if (start is None or row[0] >= start) and (stop is None or row[0] < stop)
    ]
    return found[:limit]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cache_bytes", [20_000, 16 << 20])
@pytest.mark.parametrize(
    "kind", ["plain", "small blocks", "compressed", "operands", "segments", "prefixes", "waiting", "no kernels"]
)
async def test_the_rows_are_those_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, cache_bytes: int, reverse: bool
) -> None:
    options: dict[str, Any] = {
        "small blocks": {"block_size_bytes": 200},
        "compressed": {"compression": Compression.ZSTD},
        "segments": {"segment_extractor": FixedPrefix("one", 1)},
        "prefixes": {"filter_policies": (BloomPolicy(prefix_extractor=FixedPrefix("one", 1)),)},
    }.get(kind, {})
    rows = await fill(f"file://{tmp_path}/db", operands=kind == "operands", **options)
    if kind == "no kernels":
        without_kernels(monkeypatch)
    if kind == "waiting":
        monkeypatch.setattr(LocalStore, "open_local", property(lambda _: None))
    policies = {key: options[key] for key in options if key == "filter_policies"}
    for number, way in enumerate(["rows", "1000", "mixed"]):
        async with reader_of(tmp_path, block_cache_bytes=cache_bytes, **policies) as reader:
            rng = Random(number)
            assert await taken(reader.scan(reverse=reverse), way) == expected_of(rows, reverse=reverse)
            for _ in range(5):
                start, stop = sorted(rng.sample(KEYS, 2))
                bounds: dict[str, Any] = {"start": start, "stop": stop, "limit": rng.choice((None, 1, 10, 100, 700))}
                scan = reader.scan(**bounds, reverse=reverse)
                assert await taken(scan, way) == expected_of(rows, reverse=reverse, **bounds)
                scan = reader.scan(prefix=b"b", limit=bounds["limit"], reverse=reverse)
                assert await taken(scan, way) == expected_of(
                    rows, reverse=reverse, start=b"b", stop=b"c", limit=bounds["limit"]
                )


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [0, 100_000, 400_000])
async def test_a_small_cache_changes_no_rows(tmp_path: Path, cache_bytes: int) -> None:
    rows = await fill(f"file://{tmp_path}/db")
    async with reader_of(tmp_path, block_cache_bytes=cache_bytes) as reader:
        for way in ("items", "7", "1000"):
            assert await taken(reader.scan(), way) == sorted(rows.items())
            assert await taken(reader.scan(limit=1000), way) == sorted(rows.items())[:1000]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
async def test_seeks_read_on_at_the_key(tmp_path: Path, reverse: bool) -> None:
    rows = await fill(f"file://{tmp_path}/db")
    expected = expected_of(rows, reverse=reverse)
    async with reader_of(tmp_path) as reader:
        scan = reader.scan(reverse=reverse)
        place = 0
        for count, skipped in ((1, 300), (30, 7), (300, 1), (5, 900)):
            batch = await scan.next_batch(count)
            assert [(row.key, row.value) for row in batch] == expected[place : place + count]
            place += count + skipped
            await scan.seek(expected[place][0])
        assert await taken(scan, "1000") == expected[place:]


async def test_a_transaction_sees_its_own_rows_and_a_snapshot_does_not_see_later_ones(tmp_path: Path) -> None:
    rows = await fill(f"file://{tmp_path}/db")
    async with shale.Db.open(f"file://{tmp_path}/db", merge_operator=concatenate) as db, db.snapshot() as snapshot:
        transaction = await db.transaction()
        own = {**rows, KEYS[7]: b"own", b"b": b"new"}
        transaction.put(KEYS[7], b"own")
        transaction.put(b"b", b"new")
        await db.put(KEYS[8], b"later")
        await db.flush("memtable")
        assert await taken(transaction.scan(), "1000") == sorted(own.items())
        assert await taken(snapshot.scan(limit=2000), "50") == sorted(rows.items())[:2000]
        assert await taken(db.scan(), "items") == sorted({**rows, KEYS[8]: b"later"}.items())
        await transaction.rollback()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rows", "items", "7", "1000"])
@pytest.mark.parametrize("disk_cache", [False, True])
async def test_what_the_page_cache_holds_is_read_without_waiting(
    tmp_path: Path, waiting: list[str], way: str, disk_cache: bool
) -> None:
    require_nowait(tmp_path)
    rows = await fill(f"file://{tmp_path}/db")
    options: dict[str, Any] = {}
    if disk_cache:
        options["disk_cache"] = DiskCacheOptions(tmp_path / "parts", part_bytes=1 << 16)
        async with reader_of(tmp_path, **options) as reader:
            await reader.scan().to_arrow()
    for _ in range(ATTEMPTS):
        async with reader_of(tmp_path, **options) as reader:
            waiting.clear()
            assert await taken(reader.scan(), way) == sorted(rows.items())
            assert await taken(reader.scan(limit=1000), way) == sorted(rows.items())[:1000]
        if not waiting:
            return
    pytest.fail(f"each of {ATTEMPTS} scans has waited, the last one for {waiting}")


def accesses(metrics: Metrics) -> dict[tuple[str, str], float]:
    metrics.refresh()
    return {
        (sample.labels["entry_kind"], sample.labels["result"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "slatedb_db_cache_accesses_total"
    }


async def test_a_limited_scan_fills_the_cache_and_a_full_scan_does_not(tmp_path: Path) -> None:
    require_nowait(tmp_path)
    await fill(f"file://{tmp_path}/db")
    metrics = Metrics()
    async with reader_of(tmp_path, metrics=metrics) as reader:
        await reader.scan().next_batch(1000)
        before = accesses(metrics)
        await reader.scan(limit=700).next_batch(700)
        cold = accesses(metrics)
        assert cold["data_block", "miss"] - before["data_block", "miss"] > L0_COUNT
        await reader.scan(limit=600).next_batch(600)
        warm = accesses(metrics)
        assert warm["data_block", "miss"] == cold["data_block", "miss"]
        assert warm["index", "miss"] == L0_COUNT


@pytest.mark.slow
async def test_a_scan_in_small_batches_does_not_sweep_a_small_cache(tmp_path: Path) -> None:
    require_nowait(tmp_path)
    await fill(f"file://{tmp_path}/db")
    metrics = Metrics()
    async with reader_of(tmp_path, metrics=metrics, block_cache_bytes=200_000) as reader:
        await reader.scan(start=KEYS[30], limit=5).next_batch(5)
        await reader.scan(start=KEYS[30], limit=5).next_batch(5)
        assert len(await taken(reader.scan(), "20")) > 1000
        before = accesses(metrics)
        await reader.scan(start=KEYS[30], limit=5).next_batch(5)
        assert accesses(metrics)["data_block", "miss"] == before["data_block", "miss"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 1000])
@pytest.mark.parametrize("way", ["rows", "items", "1000"])
async def test_a_damaged_block_is_named(tmp_path: Path, limit: int | None, way: str) -> None:
    await fill(f"file://{tmp_path}/db")
    for path in (tmp_path / "db" / "compacted").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[50_000] ^= 0xFF
        path.write_bytes(data)
    async with reader_of(tmp_path) as reader:
        scan = reader.scan(start=b"a0000500", limit=limit)
        with pytest.raises(CorruptionError, match=r"compacted/.*\.sst") as caught:
            await taken(scan, way)
        assert caught.value.offset is not None
        assert 40_000 < caught.value.offset <= 50_000


async def test_an_sst_that_is_gone_is_named(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    async with reader_of(tmp_path) as reader:
        for path in (tmp_path / "db" / "compacted").glob("*.sst"):
            path.unlink()
        with pytest.raises(shale.CorruptionError, match="compacted/"):
            await taken(reader.scan(), "1000")


async def test_other_tasks_run_while_blocks_are_read(tmp_path: Path) -> None:
    rows = await fill(f"file://{tmp_path}/db")
    turns = 0
    async with reader_of(tmp_path) as reader, anyio.create_task_group() as tasks:

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        tasks.start_soon(other)
        for _ in range(5):
            assert len(await taken(reader.scan(), "items")) == len(rows)
        tasks.cancel_scope.cancel()
    assert turns >= 5


async def test_large_values_are_returned_in_steps(tmp_path: Path) -> None:
    """No more than the caller wants, whatever the windows hold."""
    require_nowait(tmp_path)
    async with shale.Db.open(f"file://{tmp_path}/db", flush_interval=None) as db:
        for number in range(300):
            await db.put(b"k%04d" % number, b"%d" % (number % 10) * 20_000)
        await db.flush("memtable")
    async with reader_of(tmp_path) as reader:
        scan = reader.scan()
        first = await scan.next_batch(1000, bytes_max=500_000)
        assert len(first) == 25
        assert len(first) + len(await scan.next_batch(1000)) == 300
