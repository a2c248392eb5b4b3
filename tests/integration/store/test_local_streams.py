"""Streamed objects of a directory: readers see what is written past the page cache."""

import asyncio
import errno
import fcntl
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.core.bytes_like import BytesLike
from shale.errors import ShaleError
from shale.kernels.columns import empty_bytes_at
from shale.store.local_store import files, upload
from shale.store.local_store.adapter import LocalStore
from shale.store.local_store.upload import STAGING_BYTES
from tests.examples import examples
from tests.paths import REPOSITORY

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not upload.IS_POSSIBLE, reason="every write goes through the page cache here"),
]

O_DIRECT = getattr(os, "O_DIRECT", 0)
NOISE = memoryview(os.urandom(3 * STAGING_BYTES + 4096))
SIZES = st.one_of(
    st.sampled_from([0, 1, 4095, 4096, 4097, 8192, 65536, STAGING_BYTES - 1, STAGING_BYTES, STAGING_BYTES + 4096]),
    st.integers(0, 3 * STAGING_BYTES),
)

STREAMER = """
import asyncio, itertools, sys
from shale.store.local_store.adapter import LocalStore

async def main(folder, start):
    store = LocalStore(folder)
    async def parts(body):
        yield body
        yield body
    for number in itertools.count(int(start)):
        await store.put_stream(f"db/compacted/{number:020}.sst", parts(b"%020d" % number * 80_000))
        print("stored", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def stream(parts: Sequence[BytesLike]) -> AsyncIterator[BytesLike]:
    for part in parts:
        yield part


def three_and_a_half() -> list[BytesLike]:
    """Return parts of 3.5 staging buffers, none of which ends at a buffer's end."""
    size = 7 * STAGING_BYTES // 16
    return [NOISE[number * 4000 : number * 4000 + size] for number in range(8)]


class Disk:
    """The operating system's calls with a counter of direct writes; they fail or stop short on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.direct_writes = 0
        self.direct_opens = 0
        self.on_open: Callable[[], None] = lambda: None
        self.on_write: Callable[[int], int] = lambda size: size
        self._open, self._pwritev = os.open, os.pwritev
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "pwritev", self.pwritev)

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & O_DIRECT:
            self.direct_opens += 1
            self.on_open()
        return self._open(path, flags, mode, dir_fd=dir_fd)

    def pwritev(self, fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & O_DIRECT
        self.direct_writes += 1
        whole = sum(map(len, buffers))
        size = self.on_write(whole)
        if size == whole:
            return self._pwritev(fd, buffers, offset)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        return os.pwrite(fd, b"".join(buffers)[:size], offset)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    probe = tmp_path / "probe"
    probe.touch()
    tried = upload.DirectUpload(str(probe))
    tried.append(NOISE[:STAGING_BYTES])
    probe.unlink()
    if tried.was_refused:
        pytest.skip("this file system wants ordinary writes")
    return Disk(monkeypatch)


def fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


def in_place(sizes: Sequence[int]) -> list[BytesLike]:
    """Return parts that have the layout of the file in memory."""
    parts: list[BytesLike] = []
    offset = 0
    for size in sizes:
        part = empty_bytes_at(size, offset)
        part[:] = np.frombuffer(NOISE[offset % 4096 :][:size], np.uint8)
        parts.append(part.data)
        offset += size
    return parts


@settings(max_examples=examples(30), deadline=None)
@given(sizes=st.lists(SIZES, max_size=8), shift=st.integers(0, 4096), lies_in_place=st.booleans())
def test_an_object_is_its_parts(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shift: int, lies_in_place: bool
) -> None:
    async def scenario() -> None:
        store = LocalStore(tmp_path_factory.mktemp("store"))
        parts = in_place(sizes) if lies_in_place else [NOISE[shift : shift + size] for size in sizes]
        await store.put_stream("db/a", stream(parts))
        whole = b"".join(parts)
        got = await store.get("db/a")
        assert got is not None
        assert bytes(got.data) == whole
        piece = await store.get_range("db/a", len(whole) // 3, len(whole))
        assert piece is not None
        assert bytes(piece) == whole[len(whole) // 3 :]
        await store.delete("db/a")

    asyncio.run(scenario())


async def test_a_part_may_be_used_again_once_the_next_one_is_asked_for(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    async def parts() -> AsyncIterator[BytesLike]:
        for number in range(5):
            room[:] = bytes([number]) * len(room)
            yield room

    room = bytearray(STAGING_BYTES // 2 + 77)
    await store.put_stream("db/a", parts())
    got = await store.get("db/a")
    assert got is not None
    assert bytes(got.data) == b"".join(bytes([number]) * len(room) for number in range(5))


async def test_another_process_reads_it_at_once(tmp_path: Path, disk: Disk) -> None:
    store = LocalStore(tmp_path)
    parts = three_and_a_half()
    await store.put_stream("db/a", stream(parts))
    assert disk.direct_writes == 3
    summing = "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())"
    sums = await anyio.run_process([sys.executable, "-c", summing, str(tmp_path / "db/a")])
    assert sums.stdout.decode().strip() == sha256(b"".join(parts)).hexdigest()


async def test_without_fsync_writes_go_through_the_page_cache(tmp_path: Path, disk: Disk) -> None:
    store = LocalStore(tmp_path, fsync=False)
    await store.put_stream("db/a", stream(three_and_a_half()))
    assert disk.direct_opens == 0


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EOPNOTSUPP])
@pytest.mark.parametrize("refused", ["open", "first write", "second write"])
async def test_a_file_system_that_refuses_is_asked_once(tmp_path: Path, disk: Disk, refusal: int, refused: str) -> None:
    store = LocalStore(tmp_path)
    refused_write = 2 if refused == "second write" else 1

    def on_write(size: int) -> int:
        return fail(refusal) if disk.direct_writes >= refused_write else size

    disk.on_write = on_write
    if refused == "open":
        disk.on_open = lambda: fail(refusal)
    for key in ("db/a", "db/b"):
        await store.put_stream(key, stream(three_and_a_half()))
        assert (tmp_path / key).read_bytes() == b"".join(three_and_a_half())
    assert disk.direct_opens == refused_write


@pytest.mark.parametrize("written", [0, 1, 4096, STAGING_BYTES - 5])
async def test_writes_that_stop_short_are_completed(tmp_path: Path, disk: Disk, written: int) -> None:
    store = LocalStore(tmp_path)
    disk.on_write = lambda _size: written
    await store.put_stream("db/a", stream(three_and_a_half()))
    assert (tmp_path / "db/a").read_bytes() == b"".join(three_and_a_half())
    assert disk.direct_writes == 3
    parts = in_place([STAGING_BYTES + 100, STAGING_BYTES + 5000])
    await store.put_stream("db/b", stream(parts))
    assert (tmp_path / "db/b").read_bytes() == b"".join(parts)


async def test_parts_that_lie_as_in_the_file_are_written_from_where_they_are(tmp_path: Path, disk: Disk) -> None:
    store = LocalStore(tmp_path)
    parts = in_place([2 * STAGING_BYTES + 100, 2 * STAGING_BYTES + 4000, 2 * STAGING_BYTES])
    await store.put_stream("db/a", stream(parts))
    assert (tmp_path / "db/a").read_bytes() == b"".join(parts)
    if not disk.direct_opens or not disk.direct_writes:
        pytest.skip("this file system wants ordinary writes")
    assert disk.direct_writes == len(parts)


async def test_a_full_disk_leaves_nothing(tmp_path: Path, disk: Disk) -> None:
    store = LocalStore(tmp_path)
    disk.on_write = lambda size: fail(errno.ENOSPC) if disk.direct_writes == 2 else size
    with pytest.raises(ShaleError, match="db/a: No space left"):
        await store.put_stream("db/a", stream(three_and_a_half()))
    assert list((tmp_path / "db").iterdir()) == []
    await store.put_stream("db/b", stream(three_and_a_half()))
    assert disk.direct_writes == 5


def test_an_upload_that_asyncio_cancels_keeps_its_memory_until_its_thread_ends(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread continues after its task has ended: it writes to its own, removed file, from live memory."""
    begun, may_go, ended = threading.Event(), threading.Event(), threading.Event()
    uploads: list[weakref.ref[upload.DirectUpload]] = []
    append = upload.DirectUpload.append

    def watched(self: upload.DirectUpload, part: BytesLike) -> None:
        uploads.append(weakref.ref(self))
        try:
            append(self, part)
        finally:
            ended.set()

    def wait(size: int) -> int:
        begun.set()
        may_go.wait(10)
        return size

    async def scenario() -> None:
        store = LocalStore(tmp_path)
        task = asyncio.ensure_future(store.put_stream("db/a", stream([NOISE])))
        assert await anyio.to_thread.run_sync(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.put("db/b", b"good")
        assert uploads[0]() is not None
        may_go.set()
        assert await anyio.to_thread.run_sync(ended.wait, 10)
        assert [meta.key for meta in await store.list("")] == ["db/b"]
        assert not (tmp_path / "db/a#1").exists()
        assert (tmp_path / "db/b").read_bytes() == b"good"

    disk.on_write = wait
    monkeypatch.setattr(upload.DirectUpload, "append", watched)
    asyncio.run(scenario())
    gc.collect()
    assert uploads[0]() is None


@pytest.mark.slow
def test_a_killed_process_leaves_whole_objects_only(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(REPOSITORY / "shared")}
    for round_ in range(4):
        command = [sys.executable, "-c", STREAMER, str(tmp_path), str(round_ * 1000)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"stored\n"
            time.sleep(0.011 * round_)
            child.kill()
    listed = asyncio.run(LocalStore(tmp_path).list("db/"))
    assert len(listed) >= 4
    for meta in listed:
        number = meta.key.rpartition("/")[2].partition(".")[0]
        assert (tmp_path / meta.key).read_bytes() == number.encode() * 160_000


@pytest.mark.parametrize("cached", [0, 1, 70_000, 100_000])
async def test_what_the_page_cache_misses_comes_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: int
) -> None:
    store = LocalStore(tmp_path, fsync=False)
    await store.put("db/a", NOISE[:100_000])
    preadv = os.preadv

    def partly_cached(fd: int, rooms: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        if not flags:
            return preadv(fd, [rooms[0][:33_333]], offset)
        return preadv(fd, [rooms[0][:cached]], offset) if cached else fail(errno.EAGAIN)

    monkeypatch.setattr(os, "preadv", partly_cached)
    data = await store.get_range("db/a", 17, 100_000)
    assert data is not None
    assert bytes(data) == NOISE[17:100_000]


def test_a_file_that_ends_early_gives_no_byte_that_was_never_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345678")
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        room = files.unset_buffer(10)
        assert files.read_into(fd, 5, room) == 3
        assert bytes(room[:3]) == b"678"
        assert files.read_into(fd, 8, room) == 0
        assert files.read_into(fd, 0, files.unset_buffer(0)) == 0
    finally:
        os.close(fd)
