"""The locks of the directory store: updates of one object exclude each other, however the store was named."""

import fcntl
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

import shale
from shale.errors import ConflictError
from shale.store.local_store import files
from shale.store.local_store.adapter import LOCK_NAME, LocalStore
from shale.store.port import Update

_UPDATES = 100


def count_up(root: Path, key: str) -> None:
    """Add one to a counter many times, each time as a compare and swap."""

    async def updates() -> None:
        store = LocalStore(root, fsync=False)
        done = 0
        while done < _UPDATES:
            got = await store.get(key)
            assert got is not None
            with suppress(ConflictError):
                await store.put(key, b"%d" % (int(bytes(got.data)) + 1), mode=Update(got.meta.etag))
                done += 1

    anyio.run(updates)


@pytest.mark.slow
def test_updates_through_different_roots_exclude_each_other(tmp_path: Path) -> None:
    counter = tmp_path / "teams" / "db" / "gc" / "counter"
    counter.parent.mkdir(parents=True)
    counter.write_bytes(b"0")
    views = [(tmp_path, "teams/db/gc/counter"), (tmp_path / "teams", "db/gc/counter")] * 2
    threads = [threading.Thread(target=count_up, args=view) for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(counter.read_bytes()) == len(views) * _UPDATES
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["counter"]


async def _write(folder: Path) -> None:
    async with shale.Db.open(folder / "x", writer_checkpoint=False) as db:
        await db.put(b"k", b"v")
        await db.flush("memtable")
    await LocalStore(folder).put("x/gc/manifest.boundary", b"0")


async def _delete(folder: Path) -> None:
    store = LocalStore(folder)
    await store.delete_many([meta.key for meta in await store.list("x/")])


def test_a_database_leaves_no_file_beside_its_directory(tmp_path: Path) -> None:
    """For ``file:///x`` the directory of the store is the root of the file system."""
    anyio.run(_write, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    anyio.run(_delete, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_of_an_earlier_release_still_counts(tmp_path: Path) -> None:
    (tmp_path / "counter").write_bytes(b"0")
    thread = threading.Thread(target=count_up, args=(tmp_path, "counter"))
    with (tmp_path / LOCK_NAME).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert (tmp_path / "counter").read_bytes() == b"0"
    thread.join()
    assert (tmp_path / "counter").read_bytes() == b"%d" % _UPDATES


def test_where_directories_cannot_be_locked_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may refuse the lock of a directory."""
    monkeypatch.setattr(files, "lock_directory", lambda *_: False)
    (tmp_path / "counter").write_bytes(b"0")
    threads = [threading.Thread(target=count_up, args=(tmp_path, "counter")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "counter").read_bytes() == b"%d" % (2 * _UPDATES)
    assert (tmp_path / LOCK_NAME).exists()
