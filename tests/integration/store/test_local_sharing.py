"""Several processes in one directory, errors of the directory, and the files themselves."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import obstore
import obstore.store
import pytest

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import AccessDenied, AlreadyExists, InvalidRequestError, ShaleError
from shale.store.connect import connect
from shale.store.local_store import files as file_calls
from shale.store.local_store.adapter import LocalStore
from shale.store.port import CREATE, Update
from shale.store.preflight import require_safe_store
from tests.paths import REPOSITORY

pytestmark = pytest.mark.anyio

RACER = """
import asyncio, sys
from shale.errors import ConflictError
from shale.store.local_store.adapter import LocalStore
from shale.store.port import CREATE, Update

async def main(folder):
    store = LocalStore(folder, fsync=False)
    created = added = 0
    for number in range(150):
        try:
            await store.put(f"db/manifest/{number:020}.manifest", b"x", mode=CREATE)
            created += 1
        except ConflictError:
            pass
        while True:
            got = await store.get("db/gc/counter")
            try:
                await store.put("db/gc/counter", b"%d" % (int(bytes(got.data)) + 1), mode=Update(got.meta.etag))
                break
            except ConflictError:
                continue
        await store.delete(f"db/manifest/{number - 20:020}.manifest")
    print(created)

asyncio.run(main(sys.argv[1]))
"""


WRITER = """
import asyncio, itertools, sys
from shale.store.local_store.adapter import LocalStore
from shale.store.port import CREATE, OVERWRITE

async def main(folder, start):
    store = LocalStore(folder, fsync=False)
    async def parts(body):
        yield body
        yield body
    print("go", flush=True)
    for number in itertools.count(int(start)):
        body = b"%020d" % number * 5000
        await store.put(f"db/wal/{number:020}.sst", body, mode=CREATE)
        await store.put("db/overwritten", body, mode=OVERWRITE)
        await store.put_stream(f"db/compacted/{number:020}.sst", parts(body))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def race(folder: Path) -> list[int]:
    """Run three processes on one directory; return how many creates each of them won."""
    environment = {"PYTHONPATH": str(REPOSITORY / "shared")}
    command = [sys.executable, "-c", RACER, str(folder)]
    children = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    return [int(child.communicate(timeout=60)[0]) for child in children]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.slow
async def test_processes_race_and_every_update_counts(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put("db/gc/counter", b"0")
    assert sum(race(tmp_path)) >= 150
    got = await store.get("db/gc/counter")
    assert got is not None
    assert bytes(got.data) == b"450"
    assert "#" not in "".join(files(tmp_path))


def run_and_kill(folder: Path, start: int, after_s: float) -> None:
    """Let a process write for a while, then kill it with SIGKILL."""
    environment = {"PYTHONPATH": str(REPOSITORY / "shared")}
    command = [sys.executable, "-c", WRITER, str(folder), str(start)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"go\n"
        before = len(files(folder))
        while len(files(folder)) < before + 4:
            assert child.poll() is None
        time.sleep(after_s)
        child.kill()


@pytest.mark.slow
async def test_a_killed_process_leaves_whole_objects_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for round_ in range(6):
        run_and_kill(tmp_path, round_ * 100_000, 0.05 + 0.013 * round_)
    listed = await store.list("db/")
    assert len(listed) > 10
    for meta in listed:
        got = await store.get(meta.key)
        assert got is not None
        data = bytes(got.data)
        number = meta.key.rpartition("/")[2].partition(".")[0]
        repeats = 10_000 if "compacted" in meta.key else 5_000
        assert data == data[:20] * repeats
        assert number == "overwritten" or data[:20] == number.encode()


async def test_staged_files_and_the_lock_are_not_objects(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put("db/wal/1.sst", b"1")
    (tmp_path / "db/wal/2.sst#1").write_bytes(b"half")
    (tmp_path / "db/wal/2.sst#17").write_bytes(b"half")
    assert [meta.key for meta in await store.list("")] == ["db/wal/1.sst"]
    await store.put("db/wal/2.sst", b"whole", mode=CREATE)
    assert [meta.key for meta in await store.list("db/")] == ["db/wal/1.sst", "db/wal/2.sst"]
    assert (tmp_path / "db/wal/2.sst#1").read_bytes() == b"half"


async def test_the_etag_is_slatedbs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    etag = await store.put("db/a", b"abc")
    status = (tmp_path / "db/a").stat()
    assert etag == f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-3"'
    (tmp_path / "db/a").write_bytes(b"changed by another program")
    with pytest.raises(ShaleError):
        await store.put("db/a", b"", mode=Update(etag or ""))


async def test_rusts_local_store_sees_the_same(tmp_path: Path) -> None:
    """obstore uses the same local store as SlateDB."""
    ours, theirs = LocalStore(tmp_path), obstore.store.LocalStore(tmp_path)
    etag = await ours.put("db/wal/1.sst", b"1", mode=CREATE)
    (tmp_path / "db/wal/2.sst#1").write_bytes(b"half")
    assert obstore.head(theirs, "db/wal/1.sst")["e_tag"] == etag
    assert [found["path"] for page in obstore.list(theirs, "db") for found in page] == ["db/wal/1.sst"]
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(theirs, "db/wal/1.sst", b"2", mode="create")
    obstore.put(theirs, "db/wal/3.sst", b"3", mode="create")
    with pytest.raises(AlreadyExists):
        await ours.put("db/wal/3.sst", b"", mode=CREATE)
    meta = await ours.head("db/wal/3.sst")
    assert meta is not None
    assert meta.etag == obstore.head(theirs, "db/wal/3.sst")["e_tag"]
    await ours.put("db/wal/3.sst", b"33", mode=Update(meta.etag or ""))
    assert bytes(obstore.get(theirs, "db/wal/3.sst").bytes()) == b"33"


async def test_empty_folders_go_with_their_last_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put("db/deep/er/a", b"")
    await store.put("db/b", b"")
    await store.delete("db/deep/er/a")
    assert files(tmp_path / "db") == ["b"]
    await store.delete("db/b")
    assert not (tmp_path / "db").exists()
    await store.put("db/deep/er/a", b"", mode=CREATE)
    with pytest.raises(AlreadyExists):
        await store.put("db/deep/er/a", b"", mode=CREATE)


async def test_an_absent_directory_is_an_empty_store(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "not" / "yet")
    assert await store.get("db/a") is None
    assert await store.list("db/") == []
    await store.delete("db/a")
    assert not (tmp_path / "not").exists()


async def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = connect(f"file://{tmp_path}/file", Env.system())
    with pytest.raises(InvalidRequestError, match=f"file://{tmp_path}/file"):
        await require_safe_store(store, Env.system())
    with pytest.raises(InvalidRequestError, match="not a directory"):
        await store.list("db/")
    with pytest.raises(InvalidRequestError, match="not a directory"):
        await store.get("db/a")


async def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    if os.access("/sys/kernel", os.W_OK) and os.geteuid() != 0:
        pytest.skip("no directory here refuses writes")
    folder = "/sys/kernel/shale"
    store = connect(f"file://{folder}", Env.system())
    with pytest.raises(ShaleError, match=f"file://{folder}") as caught:
        await require_safe_store(store, Env.system())
    assert isinstance(caught.value, AccessDenied)
    assert "\n" not in str(caught.value)


def test_an_upload_that_asyncio_cancels_never_writes_into_another_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread continues after its task has ended; its descriptor must not have been reused."""
    write_all, write_begun, sync_begun = file_calls.write_all, threading.Event(), threading.Event()

    def slow(fd: int, buffers: Sequence[BytesLike]) -> None:
        if buffers[0] == b"stray":
            write_begun.set()
            sync_begun.wait(10)
        write_all(fd, buffers)

    async def parts() -> AsyncIterator[BytesLike]:
        yield b"stray"

    async def scenario() -> None:
        store = LocalStore(tmp_path / "store", fsync=False)
        upload = asyncio.ensure_future(store.put_stream("db/a", parts()))
        assert await anyio.to_thread.run_sync(write_begun.wait, 10)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        monkeypatch.setattr(store, "_sync", lambda _fd: (sync_begun.set(), time.sleep(0.2)))
        await store.put("db/b", b"good")
        got = await store.get("db/b")
        assert got is not None
        assert bytes(got.data) == b"good"

    monkeypatch.setattr(file_calls, "write_all", slow)
    asyncio.run(scenario())
