"""The disk cache survives restarts and damage, keeps its limit, and never fails a read."""

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import anyio
import pytest

from shale.concurrency.background_tasks import BackgroundTasks
from shale.core.open_file import LocalFiles
from shale.env import Clock, Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, InvalidRequestError
from shale.sst import disk_cache
from shale.sst.disk_cache import DiskCache, object_name
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.disk_part import PartRange, head_size
from shale.sst.reader import SstReader
from shale.sst.reads import part_reader
from shale.sst.reads.part_reader import PartReader
from shale.types import Entry
from tests.unit.engine.reading import PATHS, RangeRecordingStore, Shelf, quiet_env

T = TypeVar("T")
PART = 64 << 10
ROWS = [Entry(b"k%05d" % key, b"v" * 200, key + 1, 0) for key in range(2000)]


class Hands(Clock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def monotonic_s(self) -> float:
        return self.now_s


def cache_in(directory: Path, *, parts: int = 64, clock: Hands | None = None) -> DiskCache:
    size = PART + head_size(PART)
    return DiskCache(DiskCacheOptions(str(directory), parts * size, PART), clock if clock is not None else Hands())


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class SlowCpu(InlineCpu):
    """A CPU pool whose background work waits at a gate."""

    gate: anyio.Event | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self.gate is not None and "_store" in repr(work):
            await self.gate.wait()
        return await super().run(work)


class Objects:
    """A disk cache over a store that counts its reads."""

    def __init__(self, cache: DiskCache, cpu: InlineCpu | None = None) -> None:
        self.store = RangeRecordingStore()
        self.gates: dict[str, anyio.Event] = {}
        self.background = BackgroundTasks()
        env = Env(SystemClock(), Random(1), cpu or InlineCpu())
        self.parts = PartReader(cache, self.store.url, env, self.background)

    async def read(self, key: str, start: int, end: int, size: int) -> memoryview:
        return await self.parts.read(key, start, end, size, partial(self._fetch, key))

    async def _fetch(self, key: str, start: int, end: int) -> memoryview:
        data = await self.store.get_range(key, start, end)
        if key in self.gates:
            await self.gates[key].wait()
        assert data is not None
        return data

    async def put(self, key: str, size: int) -> bytes:
        data = Random(key).randbytes(size)
        await self.store.put(key, data)
        return data


def test_a_read_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is not on disk yet is found in memory, once; a damaged part is dropped."""

    async def run() -> None:
        slow = SlowCpu()
        objects = Objects(cache_in(tmp_path), slow)
        data = await objects.put("a", 2 * PART)
        async with anyio.create_task_group() as tasks:
            objects.background.open(tasks)
            slow.gate = anyio.Event()
            assert bytes(await objects.read("a", 0, 10, 2 * PART)) == data[:10]
            assert bytes(await objects.read("a", 5, 20, 2 * PART)) == data[5:20]
            assert objects.store.reads == [("a", 0, PART)]
            monkeypatch.setattr(part_reader, "UNWRITTEN_BYTES_MAX", PART)
            assert bytes(await objects.read("a", PART, PART + 9, 2 * PART)) == data[PART : PART + 9]
            assert files_of(tmp_path) == []
            slow.gate.set()
        assert len(files_of(tmp_path)) == 1
        async with anyio.create_task_group() as tasks:
            objects.background.open(tasks)
            slow.gate = anyio.Event()
            await objects.read("a", PART, PART + 9, 2 * PART)
            objects.parts.forget("a")
            slow.gate.set()
        assert files_of(tmp_path) == []
        assert not objects.parts.pending_parts

    anyio.run(run)


@pytest.mark.parametrize("seed", range(5))
def test_every_range_is_what_the_store_has(tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        rng = Random(seed)
        objects = Objects(cache_in(tmp_path, parts=8))
        size = rng.randint(1, 6 * PART)
        data = await objects.put("a", size)
        for _ in range(60):
            start = rng.randrange(size)
            end = rng.randint(start + 1, size)
            assert bytes(await objects.read("a", start, end, size)) == data[start:end]

    anyio.run(run)


def test_a_part_is_fetched_once_and_outlives_the_process(tmp_path: Path) -> None:
    async def run() -> None:
        size = 3 * PART - 100
        objects = Objects(cache_in(tmp_path))
        data = await objects.put("a", size)
        await objects.read("a", 10, PART + 10, size)
        assert objects.store.reads == [("a", 0, 2 * PART)]
        await objects.read("a", PART + 50, 2 * PART + 50, size)
        assert objects.store.reads[1:] == [("a", 2 * PART, size)]
        assert (objects.parts.accesses, objects.parts.hits) == (4, 1)

        again = Objects(cache_in(tmp_path))
        assert bytes(await again.read("a", 5, size, size)) == data[5:]
        assert again.store.reads == []

    anyio.run(run)


def test_stores_are_told_apart(tmp_path: Path) -> None:
    assert object_name("s3://one", "db/x.sst") != object_name("s3://two", "db/x.sst")


def test_readers_of_one_part_at_the_same_time_share_one_request(tmp_path: Path) -> None:
    async def run() -> None:
        objects = Objects(cache_in(tmp_path))
        data = await objects.put("a", 2 * PART)
        objects.gates["a"] = anyio.Event()
        got: list[bytes] = []

        async def read(start: int, end: int) -> None:
            got.append(bytes(await objects.read("a", start, end, 2 * PART)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, 0, 100)
            tasks.start_soon(read, 50, 80)
            tasks.start_soon(read, PART - 10, PART + 10)
            await anyio.wait_all_tasks_blocked()
            objects.gates["a"].set()
        assert sorted(got) == sorted([data[:100], data[50:80], data[PART - 10 : PART + 10]])
        assert sorted(objects.store.reads) == [("a", 0, PART), ("a", PART, 2 * PART)]

    anyio.run(run)


def test_who_waits_for_a_cancelled_reader_reads_itself(tmp_path: Path) -> None:
    async def run() -> None:
        objects = Objects(cache_in(tmp_path))
        data = await objects.put("a", PART)
        objects.gates["a"] = anyio.Event()
        got: list[bytes] = []

        async def wait() -> None:
            got.append(bytes(await objects.read("a", 0, 10, PART)))

        async with anyio.create_task_group() as tasks, anyio.create_task_group() as doomed:
            doomed.start_soon(objects.read, "a", 0, 5, PART)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            doomed.cancel_scope.cancel()
            objects.gates.pop("a")
        assert got == [data[:10]]
        assert len(objects.store.reads) == 2

    anyio.run(run)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: flip(path, 3), id="magic"),
        pytest.param(lambda path: flip(path, 12), id="name"),
        pytest.param(lambda path: flip(path, 34), id="checksum"),
        pytest.param(lambda path: flip(path, head_size(PART)), id="first byte"),
        pytest.param(lambda path: flip(path, head_size(PART) + PART - 1), id="last byte"),
        pytest.param(lambda path: cut(path, head_size(PART) + PART - 1), id="one byte short"),
        pytest.param(lambda path: cut(path, 20), id="torn head"),
        pytest.param(lambda path: cut(path, 0), id="empty"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-4096] + bytes(4096)), id="page of zeros"),
    ],
)
def test_damage_is_found_dropped_and_repaired(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async def run() -> None:
        objects = Objects(cache_in(tmp_path))
        data = await objects.put("a", PART)
        await objects.read("a", 0, PART, PART)
        (path,) = files_of(tmp_path)
        whole = path.read_bytes()
        damage(path)
        assert bytes(await objects.read("a", 0, PART, PART)) == data
        assert len(objects.store.reads) == 2
        assert path.read_bytes() == whole

    anyio.run(run)


def test_a_file_under_a_wrong_name_is_not_believed(tmp_path: Path) -> None:
    async def run() -> None:
        objects = Objects(cache_in(tmp_path))
        for key in ("a", "b"):
            await objects.put(key, PART)
            await objects.read(key, 0, 10, PART)
        one, other = files_of(tmp_path)
        one.write_bytes(other.read_bytes())
        for key in ("a", "b"):
            got = await objects.read(key, 0, 10, PART)
            assert bytes(got) == Random(key).randbytes(PART)[:10]

    anyio.run(run)


def test_the_bound_holds_and_what_is_used_stays(tmp_path: Path) -> None:
    async def run() -> None:
        cache = cache_in(tmp_path, parts=4)
        objects = Objects(cache)
        await objects.put("a", 12 * PART)
        for part in range(1, 12):
            await objects.read("a", 0, 10, 12 * PART)
            await objects.read("a", part * PART, part * PART + 10, 12 * PART)
            assert sum(path.stat().st_size for path in files_of(tmp_path)) <= cache.options.max_bytes
        assert (cache.keys, cache.evicted_keys) == (4, 8)
        assert cache.size_bytes == sum(path.stat().st_size for path in files_of(tmp_path))
        assert [read for read in objects.store.reads if read[1] == 0] == [("a", 0, PART)]

    anyio.run(run)


def test_processes_that_share_a_directory_see_each_other(tmp_path: Path) -> None:
    """Each process has its own index; the bound includes files written since the last listing."""

    async def run() -> None:
        ours, theirs = Objects(cache_in(tmp_path, parts=64)), Objects(cache_in(tmp_path, parts=64))
        for objects in (ours, theirs):
            await objects.put("a", 200 * PART)
        await ours.read("a", 0, PART, 200 * PART)
        await theirs.read("a", 0, PART, 200 * PART)
        assert theirs.store.reads == []
        for part in range(200):
            await (ours if part % 2 else theirs).read("a", part * PART, part * PART + 1, 200 * PART)
        assert 60 <= len(files_of(tmp_path)) <= 64 + 2 * 3

    anyio.run(run)


def test_a_full_disk_fails_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        hands = Hands()
        cache = cache_in(tmp_path, clock=hands)
        objects = Objects(cache)
        data = await objects.put("a", 12 * PART)
        await objects.read("a", 0, 8 * PART, 12 * PART)
        assert len(files_of(tmp_path)) == 8

        def full(self: Path, *args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(disk_cache.Path, "replace", full)
            for part in (8, 9):
                start = part * PART
                assert bytes(await objects.read("a", start, start + 9, 12 * PART)) == data[start : start + 9]
        assert cache.errors == 1
        assert len(files_of(tmp_path)) == 7, "some room was given back, and nothing unfinished is left"
        await objects.read("a", 10 * PART, 11 * PART, 12 * PART)
        assert len(files_of(tmp_path)) == 7, "it waits before it tries again"
        hands.now_s += 11
        await objects.read("a", 10 * PART, 11 * PART, 12 * PART)
        assert len(files_of(tmp_path)) == 8

    anyio.run(run)


def test_a_directory_that_vanished_fails_no_read(tmp_path: Path) -> None:
    async def run() -> None:
        objects = Objects(cache_in(tmp_path / "cache"))
        data = await objects.put("a", PART)
        (tmp_path / "cache" / "parts-1").rmdir()
        (tmp_path / "cache" / "parts-1").write_text("a file in its place")
        assert bytes(await objects.read("a", 0, 10, PART)) == data[:10]

    anyio.run(run)


def test_a_directory_that_was_cleaned_away_is_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        cache = cache_in(tmp_path / "cache")
        objects = Objects(cache)
        data = await objects.put("a", PART)
        await objects.read("a", 0, 10, PART)
        shutil.rmtree(tmp_path / "cache")
        assert bytes(await objects.read("a", 0, 10, PART)) == data[:10]
        assert cache.errors == 0
        assert len(files_of(tmp_path)) == cache.keys == 1

    anyio.run(run)


def test_unfinished_files_of_the_dead_go(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "parts-1").mkdir()
        old, young = tmp_path / "parts-1" / "7-0.new", tmp_path / "parts-1" / "8-0.new"
        for path in (old, young):
            path.write_bytes(b"half")
        os.utime(old, (1, 1))
        objects = Objects(cache_in(tmp_path))
        await objects.put("a", 100)
        await objects.read("a", 0, 10, 100)
        assert not old.exists()
        assert young.exists()

    anyio.run(run)


@pytest.mark.parametrize(
    "options", [{"directory": ""}, {"part_bytes": 1000}, {"part_bytes": 1 << 30}, {"max_bytes": 1000}]
)
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="disk_cache"):
        DiskCacheOptions(**{"directory": "x", **options})  # type: ignore[arg-type]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequestError, match="file/sub cannot be used"):
        cache_in(tmp_path / "file" / "sub")


def reader_of(shelf: Shelf, cache: DiskCache) -> SstReader:
    return SstReader(shelf.store, PATHS, type(shelf.reader.cache)(0), quiet_env(), disk=cache)


def test_ssts_are_read_from_disk(tmp_path: Path) -> None:
    async def run() -> None:
        shelf = Shelf()
        sst = await shelf.sst(ROWS)
        for directory_is_warm in (False, True):
            shelf.store.reads.clear()
            reader = reader_of(shelf, cache_in(tmp_path))
            blocks = len((await reader.meta(sst)).index)
            assert len(await reader.rows(sst, 0, blocks)) == len(ROWS)
            slot = reader.slot(sst)
            assert len(await reader.data_blocks.images(slot, await reader.metadata.load(slot), 5, 7)) == 2
            assert bool(shelf.store.reads) is not directory_is_warm

    anyio.run(run)


def test_damage_that_came_from_the_store_does_not_stay(tmp_path: Path) -> None:
    """A byte that flipped in transfer is cached under a valid checksum; after an error the part is fetched again."""

    async def run() -> None:
        shelf = Shelf()
        sst = await shelf.sst(ROWS)
        reader = reader_of(shelf, cache_in(tmp_path))
        key = reader.slot(sst).path
        good = bytes((await shelf.store.get(key)).data)  # type: ignore[union-attr]
        await shelf.store.put(key, bytes([good[0] ^ 1]) + good[1:])
        with pytest.raises(CorruptionError, match="checksum"):
            await reader.rows(sst, 0, 1)
        await shelf.store.put(key, good)
        assert len(await reader.rows(sst, 0, 1))

    anyio.run(run)


def test_processes_of_one_number_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Containers that share a directory may have equal process ids, also after a crash."""
    cache = cache_in(tmp_path)
    others = tmp_path / "parts-1" / f"{os.getpid()}-0.new"
    others.write_bytes(b"half")
    name = object_name("store", "a")
    cache.store(name, 0, b"whole")
    assert cache.load(PartRange(name, 0, 5, 0, 5)) == b"whole"
    assert (cache.errors, others.read_bytes()) == (0, b"half")


class CountingCpu(InlineCpu):
    """A CPU pool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return await super().run(work)


class SstOnDisk:
    """An SST whose parts are in a disk cache, and a reader without memory that has read none of its blocks."""

    def __init__(self, directory: Path) -> None:
        self.shelf = Shelf()
        self.cpu = CountingCpu()
        self.cache = cache_in(directory)
        env = Env(SystemClock(), Random(1), self.cpu)
        self.reader = SstReader(self.shelf.store, PATHS, type(self.shelf.reader.cache)(0), env, disk=self.cache)

    async def fill(self) -> None:
        sst = await self.shelf.sst(ROWS)
        self.slot = self.reader.slot(sst)
        self.meta = await self.reader.metadata.load(self.slot)
        self.images = await self.reader.data_blocks.images(self.slot, self.meta, 0, len(self.meta.index))
        self.cpu.calls = 0
        self.shelf.store.reads.clear()


def test_parts_on_disk_are_read_without_waiting(tmp_path: Path) -> None:
    """Also blocks that lie on two parts; each read counts as a hit and keeps its part."""

    async def run() -> None:
        disk = SstOnDisk(tmp_path)
        await disk.fill()
        if LocalFiles().open(str(files_of(tmp_path)[0])) is None:
            pytest.skip("this file system has no reads that do not wait")
        assert disk.reader.metadata.load_now(disk.slot) is not None
        blocks = range(len(disk.images))
        assert [disk.reader.local_blocks.read_now(disk.slot, disk.meta, block) for block in blocks] == disk.images
        assert (disk.cpu.calls, disk.shelf.store.reads) == (0, [])
        assert disk.shelf.reader.local_blocks.read_now(disk.slot, disk.meta, 0) is None

    anyio.run(run)


@pytest.mark.parametrize("place", [-1, 3], ids=["in a block", "in the head"])
def test_a_damaged_part_is_left_to_the_reads_that_wait(tmp_path: Path, place: int) -> None:
    async def run() -> None:
        disk = SstOnDisk(tmp_path)
        await disk.fill()
        for path in files_of(tmp_path):
            data = bytearray(path.read_bytes())
            data[head_size(PART) + 10 if place < 0 else place] ^= 1
            path.write_bytes(data)
        assert disk.reader.local_blocks.read_now(disk.slot, disk.meta, 0) is None
        assert await disk.reader.data_blocks.images(disk.slot, disk.meta, 0, 1) == disk.images[:1]
        assert disk.shelf.store.reads
        assert disk.reader.local_blocks.read_now(disk.slot, disk.meta, 0) in (None, disk.images[0])

    anyio.run(run)


def test_a_part_that_is_not_on_disk_is_left_to_the_reads_that_wait(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SstOnDisk(tmp_path)
        await disk.fill()
        disk.reader.evict(disk.slot, disk=True)
        assert disk.reader.local_blocks.read_now(disk.slot, disk.meta, 0) is None

    anyio.run(run)
