"""Gets of blocks that are not in memory, from a directory: the kernel asks for one part after the other.

What the page cache holds is read without waiting; the rest, one part after the other, with reads that wait.
"""

import os
from pathlib import Path
from random import Random

import anyio
import pytest

import shale
from shale.core import open_file
from shale.errors import CorruptionError
from shale.store.local_store.adapter import LocalStore
from shale.store.port import LocalObject, OpenLocal
from shale.telemetry.metrics import Metrics
from tests.plain_kernels import without_kernels

pytestmark = pytest.mark.anyio
KEYS = [b"%016x" % Random(number).getrandbits(64) for number in range(2000)]


def concatenate(_key: bytes, existing: bytes | None, operands: list[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


async def fill(url: str) -> dict[bytes, bytes | None]:
    """Write four L0s with overlapping keys: values, newer values, tombstones and operands."""
    rng, expected = Random(4), dict[bytes, bytes | None]()
    async with shale.Db.open(url, merge_operator=concatenate) as db:
        for round_number in range(4):
            for key in rng.sample(KEYS, 900):
                kind = rng.random()
                if kind < 0.7:
                    expected[key] = b"v%d" % round_number * 20
                    await db.put(key, b"v%d" % round_number * 20)
                elif kind < 0.85:
                    expected[key] = None
                    await db.delete(key)
                else:
                    expected[key] = (expected.get(key) or b"") + b"+%d" % round_number
                    await db.merge(key, b"+%d" % round_number)
            await db.flush("memtable")
    return expected


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the reads that may wait."""
    keys: list[str] = []
    read = LocalStore.get_range

    async def recorded(store: LocalStore, key: str, start: int, end: int) -> memoryview | None:
        keys.append(key)
        return await read(store, key, start, end)

    monkeypatch.setattr(LocalStore, "get_range", recorded)
    return keys


@pytest.fixture
def without_nowait(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: LocalStore) -> OpenLocal | None:
        return None

    monkeypatch.setattr(LocalStore, "open_local", property(none))


def require_nowait(directory: Path) -> None:
    (directory / "probe").write_bytes(b"x")
    if open_file.LocalFiles().open(str(directory / "probe")) is None:
        pytest.skip("this file system has no reads that do not wait")


def open_ssts(directory: Path) -> set[str]:
    """Return the names of the SSTs that this process has open."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {link.name for link in links if link.is_relative_to(directory) and ".sst" in link.name}


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["at once", "waiting"])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "plain"])
@pytest.mark.parametrize("cache_bytes", [0, 20_000, 1 << 20])
async def test_every_key_is_found_whatever_the_cache_holds(
    tmp_path: Path, cache_bytes: int, kernels: bool, reads: str, request: pytest.FixtureRequest
) -> None:
    expected = await fill(f"file://{tmp_path}/db")
    if not kernels:
        without_kernels(request.getfixturevalue("monkeypatch"))
    if reads == "waiting":
        request.getfixturevalue("without_nowait")
    options = {"merge_operator": concatenate, "block_cache_bytes": cache_bytes}
    # With a small cache every key costs the metadata of four SSTs again, and without kernels whole blocks are decoded.
    # Some keys of each block are enough then.
    some = KEYS[::10]
    many = KEYS if kernels and cache_bytes > 20_000 else some
    async with shale.DbReader.open(f"file://{tmp_path}/db", **options) as reader:  # type: ignore[arg-type]
        for key in some:
            assert await reader.get(key) == expected.get(key)
        row = await reader.get_row(next(key for key in KEYS if expected.get(key)))
        assert row is not None
    async with shale.DbReader.open(f"file://{tmp_path}/db", **options) as reader:  # type: ignore[arg-type]
        assert await reader.get_many(many) == [expected.get(key) for key in many]
        assert await reader.get_many(many, now_ms=1) == [expected.get(key) for key in many]


async def test_what_the_page_cache_holds_is_read_without_waiting(tmp_path: Path, waiting: list[str]) -> None:
    require_nowait(tmp_path)
    expected = await fill(f"file://{tmp_path}/db")
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        waiting.clear()
        for key in KEYS[:500]:
            assert await reader.get(key) == expected.get(key)
        assert await reader.get_many(KEYS[500:]) == [expected.get(key) for key in KEYS[500:]]
        assert [key for key in waiting if ".sst" in key] == []


async def test_other_tasks_run_while_many_keys_are_read(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        turns = 0

        async def count(scope: anyio.CancelScope) -> None:
            nonlocal turns
            with scope:
                while True:
                    await anyio.lowlevel.checkpoint()
                    turns += 1

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(count, scope)
            await reader.get_many(KEYS)
            scope.cancel()
    assert turns >= len(KEYS) // 256 - 1


@pytest.mark.parametrize("page_cache", ["full", "empty"])
async def test_each_read_counts_as_one_request(tmp_path: Path, page_cache: str) -> None:
    """Whether the page cache holds what is read, or the read has to be repeated with one that waits."""
    require_nowait(tmp_path)
    await fill(f"file://{tmp_path}/db")
    if page_cache == "empty":
        evict_ssts(tmp_path)
    metrics = Metrics()
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate, metrics=metrics) as reader:
        before = requests(metrics)
        for key in KEYS[:200]:
            await reader.get(key)
        counted = accesses(metrics)
        assert requests(metrics) - before == counted["index", "miss"] + counted["data_block", "miss"]


def evict_ssts(directory: Path) -> None:
    """Have the kernel drop the pages of all SSTs."""
    for path in directory.rglob("*.sst"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def requests(metrics: Metrics) -> float:
    metrics.refresh()
    labels = {"api": "get_range", "component": "reader"}
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "slatedb_object_store_requests_total" and labels.items() <= sample.labels.items()
    )


async def test_files_stay_open_until_the_reader_is_closed(tmp_path: Path) -> None:
    require_nowait(tmp_path)
    await fill(f"file://{tmp_path}/db")
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        await read_all(reader)
        assert len(open_ssts(tmp_path)) == 4
    assert not open_ssts(tmp_path)


async def test_few_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_nowait(tmp_path)
    expected = await fill(f"file://{tmp_path}/db")
    monkeypatch.setattr(open_file, "OPEN_FILES_MAX", open_file.open_files() + 2)
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        for key in KEYS:
            assert await reader.get(key) == expected.get(key)
        assert len(open_ssts(tmp_path)) == 2


async def test_files_are_closed_with_the_next_manifest(tmp_path: Path) -> None:
    """It may name other SSTs; the space of a deleted one is free only after it was closed."""
    require_nowait(tmp_path)
    await fill(f"file://{tmp_path}/db")
    async with shale.Db.open(f"file://{tmp_path}/db", merge_operator=concatenate) as db:
        await db.get_many(KEYS)
        assert len(open_ssts(tmp_path)) == 4
        await db.put(b"k", b"v")
        await db.flush("memtable")
        assert not open_ssts(tmp_path)


async def test_misses_are_counted_once_and_are_no_hits(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    metrics = Metrics()
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate, metrics=metrics) as reader:
        for key in KEYS[:200]:
            await reader.get(key)
        cold = accesses(metrics)
        for key in KEYS[:200]:
            await reader.get(key)
        warm = accesses(metrics)
    assert cold["index", "miss"] == 4
    assert all(count >= 0 for count in cold.values())
    assert warm["data_block", "miss"] == cold["data_block", "miss"] > 0
    # Each get looks at as many blocks as before, and now finds all of them.
    seen = cold["data_block", "hit"] + cold["data_block", "miss"]
    assert warm["data_block", "hit"] - cold["data_block", "hit"] >= seen * 0.9


def accesses(metrics: Metrics) -> dict[tuple[str, str], float]:
    counted = {}
    metrics.refresh()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "slatedb_db_cache_accesses_total":
                counted[sample.labels["entry_kind"], sample.labels["result"]] = sample.value
    return counted


async def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    await fill(f"file://{tmp_path}/db")
    for path in (tmp_path / "db" / "compacted").glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[100] ^= 0xFF
        path.write_bytes(data)
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        with pytest.raises(CorruptionError, match="compacted/"):
            await read_all(reader)


async def read_all(reader: shale.DbReader) -> None:
    for key in sorted(KEYS):
        await reader.get(key)


async def test_an_sst_that_was_deleted_is_read_on_while_it_is_open(tmp_path: Path) -> None:
    """Its bytes never change, so it answers as the block cache does."""
    require_nowait(tmp_path)
    expected = await fill(f"file://{tmp_path}/db")
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        await reader.get_many(KEYS[:20])
        assert len(open_ssts(tmp_path)) == 4
        for path in (tmp_path / "db" / "compacted").glob("*.sst"):
            path.unlink()
        for key in KEYS:
            assert await reader.get(key) == expected.get(key)


class CountedObject:
    """An open object that counts its reads."""

    def __init__(self, inner: LocalObject, reads: list[int]) -> None:
        self._inner = inner
        self._reads = reads

    def read_into(self, buffer: memoryview, start: int) -> int:
        self._reads.append(start)
        return self._inner.read_into(buffer, start)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first bytes of all reads of SSTs from the store, those included that do not wait."""
    starts: list[int] = []
    get_range, open_local = LocalStore.get_range, LocalStore.open_local

    async def counted(store: LocalStore, key: str, start: int, end: int) -> memoryview | None:
        starts.append(start)
        return await get_range(store, key, start, end)

    def open_counted(store: LocalStore) -> OpenLocal:
        def opened(key: str) -> LocalObject | None:
            inner = open_local.__get__(store)(key)
            return None if inner is None else CountedObject(inner, starts)

        return opened

    monkeypatch.setattr(LocalStore, "get_range", counted)
    monkeypatch.setattr(LocalStore, "open_local", property(open_counted))
    return starts


SST_KEYS = [b"%016x" % Random(number).getrandbits(64) for number in range(24_000)]
SSTS = 4


async def fill_large(url: str) -> None:
    """Write four L0s with overlapping keys, each with some kilobytes of metadata."""
    async with shale.Db.open(url, flush_interval=None) as db:
        for number in range(SSTS):
            batch = shale.WriteBatch()
            for key in SST_KEYS[number::SSTS]:
                batch.put(key, b"v" * 100)
            await db.write(batch)
            await db.flush("memtable")


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "waiting"])
@pytest.mark.parametrize("cache_bytes", [0, 2_000, 20_000, 40_000])
async def test_a_cache_without_room_for_the_metadata_of_one_key_costs_few_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int], cache_bytes: int, at_once: bool
) -> None:
    """Each part that is read evicts another one that the kernel asks for next."""
    await fill_large(f"file://{tmp_path}/db")
    if not at_once:
        monkeypatch.setattr(CountedObject, "read_into", lambda *_: 0)
    async with shale.DbReader.open(f"file://{tmp_path}/db", block_cache_bytes=cache_bytes) as reader:
        for key in SST_KEYS[:5]:
            reads.clear()
            assert await reader.get(key) == b"v" * 100
            assert len(reads) <= 4 * SSTS
        reads.clear()
        wanted = SST_KEYS[:: len(SST_KEYS) // 20]
        assert await reader.get_many(wanted) == [b"v" * 100] * len(wanted)
        assert len(reads) <= 4 * SSTS * len(wanted)


async def test_many_keys_share_reads(tmp_path: Path, reads: list[int]) -> None:
    require_nowait(tmp_path)
    await fill_large(f"file://{tmp_path}/db")
    metrics = Metrics()
    async with shale.DbReader.open(f"file://{tmp_path}/db", metrics=metrics) as reader:
        reads.clear()
        assert await reader.get_many([*SST_KEYS[:3000], b"absent"]) == [*[b"v" * 100] * 3000, None]
        cold = accesses(metrics)
        assert SSTS < len(reads) < cold["data_block", "miss"] / 4
        assert all(count >= 0 for count in cold.values())
        reads.clear()
        assert await reader.get_many(SST_KEYS[:3000]) == [b"v" * 100] * 3000
        assert not reads
    assert accesses(metrics)["data_block", "miss"] == cold["data_block", "miss"]


async def test_a_damaged_block_is_named_among_many_keys(tmp_path: Path) -> None:
    await fill_large(f"file://{tmp_path}/db")
    path = min((tmp_path / "db" / "compacted").glob("*.sst"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)
    async with shale.DbReader.open(f"file://{tmp_path}/db") as reader:
        with pytest.raises(CorruptionError, match=f"compacted/{path.name}"):
            await reader.get_many(SST_KEYS[:4000])


@pytest.mark.slow
async def test_a_cache_that_keeps_nothing_is_not_filled(tmp_path: Path, reads: list[int]) -> None:
    """A read for it would be lost."""
    await fill_large(f"file://{tmp_path}/db")
    async with shale.DbReader.open(f"file://{tmp_path}/db", block_cache_bytes=0) as reader:
        reads.clear()
        assert await reader.get(SST_KEYS[0]) == b"v" * 100
        assert len(reads) <= SSTS + 2


async def test_a_file_system_on_which_reads_may_wait_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open waits for a remote file system, and the event loop with it."""
    expected = await fill(f"file://{tmp_path}/db")
    asked: list[int] = []

    def refused(fd: int) -> None:
        asked.append(fd)

    monkeypatch.setattr(open_file, "nowait_flags", refused)
    async with shale.DbReader.open(f"file://{tmp_path}/db", merge_operator=concatenate) as reader:
        for key in KEYS[:100]:
            assert await reader.get(key) == expected.get(key)
        assert await reader.get_many(KEYS) == [expected.get(key) for key in KEYS]
    assert len(asked) == 1


async def test_a_scan_that_goes_on_after_close_keeps_no_file_open(tmp_path: Path) -> None:
    require_nowait(tmp_path)
    expected = await fill(f"file://{tmp_path}/db")
    db = await shale.Db.open(f"file://{tmp_path}/db", merge_operator=concatenate)
    rows = db.scan()
    seen = [(await anext(rows)).key]
    await db.close()
    seen += [row.key async for row in rows]
    assert seen == sorted(key for key, value in expected.items() if value is not None)
    assert open_ssts(tmp_path) == set()
