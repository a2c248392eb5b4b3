"""Databases whose WAL is in a backend instead of a store (docs/how-to/wal-backend.md)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import shale
from shale.admin.destroy import DestroyMode
from shale.engine.wal_backend_store import WalBackendStore
from shale.env import Env
from shale.errors import (
    AlreadyExists,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    ProtocolPanic,
    UnavailableError,
)
from shale.format.names import manifest_key, wal_key, wal_prefix
from shale.gc.options import GcOptions, TaskOptions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.memory import MemoryStore
from shale.store.options import StoreOptions
from shale.store.port import CREATE, OVERWRITE
from shale.testing.wal_backends import MemoryWalBackend, check_wal_backend
from shale.types import CasMode, Manifest

pytestmark = pytest.mark.anyio


class FlakyBackend(MemoryWalBackend):
    """Loses the responses of its first puts, and fails before its first reads."""

    def __init__(self, lost_puts: int, failed_reads: int = 0) -> None:
        super().__init__()
        self.lost_puts = lost_puts
        self.failed_reads = failed_reads

    async def put(self, path: str, wal_id: int, data: bytes, *, epoch: int | None, put_id: str) -> bool:
        done = await super().put(path, wal_id, data, epoch=epoch, put_id=put_id)
        if self.lost_puts:
            self.lost_puts -= 1
            raise ConnectionResetError("no response")
        return done

    async def read(self, path: str, wal_id: int) -> Any:
        if self.failed_reads:
            self.failed_reads -= 1
            raise TimeoutError("no response")
        return await super().read(path, wal_id)


async def latest(store: MemoryStore, path: str = "db") -> Manifest:
    return (await ManifestStore(store, path, Env.system()).read_latest()).value


async def crashed(backend: MemoryWalBackend, rows: int = 3, **settings: Any) -> MemoryStore:
    """Write durable rows; return the store as it is after a crash of the writer, with those rows only in the WAL."""
    store, left = MemoryStore(), MemoryStore()
    files: dict[str, Any] = {}
    async with shale.Db.open("db", store=store, wal=backend, flush_interval=0, **settings) as db:
        for number in range(rows):
            await (await db.put(b"%d" % number, b"v%d" % number)).durable()
        left.objects.update(store.objects)
        files.update({path: dict(found) for path, found in backend.files.items()})
    backend.files = files
    return left


async def rows_of(db: Any) -> list[tuple[bytes, bytes]]:
    return [(bytes(row.key), bytes(row.value)) async for row in db.scan()]


ROWS = [(b"0", b"v0"), (b"1", b"v1"), (b"2", b"v2")]


async def test_the_backend_in_memory_keeps_the_rules() -> None:
    await check_wal_backend(MemoryWalBackend())


async def _put_overwrites(backend: MemoryWalBackend) -> None:
    put = backend.put

    async def overwrite(path: str, wal_id: int, data: bytes, *, epoch: int | None, put_id: str) -> bool:
        await backend.delete(path, [wal_id])
        return await put(path, wal_id, data, epoch=epoch, put_id=put_id)

    backend.put = overwrite  # type: ignore[method-assign]


async def _fences_are_missing(backend: MemoryWalBackend) -> None:
    read = backend.read

    async def read_rows(path: str, wal_id: int) -> Any:
        return await read(path, wal_id) or None

    backend.read = read_rows  # type: ignore[method-assign]


async def _one_list_for_all(backend: MemoryWalBackend) -> None:
    put = backend.put

    async def put_first(path: str, wal_id: int, data: bytes, *, epoch: int | None, put_id: str) -> bool:
        return await put("one", wal_id, data, epoch=epoch, put_id=put_id)

    backend.put = put_first  # type: ignore[method-assign]


@pytest.mark.parametrize("break_", [_put_overwrites, _fences_are_missing, _one_list_for_all])
async def test_the_check_finds_a_backend_that_breaks_a_rule(break_: Callable[[MemoryWalBackend], Any]) -> None:
    backend = MemoryWalBackend()
    await break_(backend)
    with pytest.raises(AssertionError):
        await check_wal_backend(backend)


async def test_durable_rows_are_in_the_backend_and_the_next_writer_replays_them() -> None:
    backend = MemoryWalBackend()
    store = await crashed(backend)
    assert not [key for key in store.objects if key.startswith(wal_prefix("db"))]
    assert sorted(backend.files["db"]) == [1, 2, 3, 4]
    assert backend.files["db"][1][1] == b"", "the fence"
    assert {entry.epoch for entry, _ in backend.files["db"].values()} == {1}
    async with shale.Db.open("db", store=store, wal=backend) as db:
        assert await rows_of(db) == ROWS


async def test_a_newer_writer_fences_the_older_one() -> None:
    backend, store = MemoryWalBackend(), MemoryStore()
    old = await shale.Db.open("db", store=store, wal=backend, flush_interval=0, manifest_poll_interval="1h")
    await (await old.put(b"0", b"v0")).durable()
    async with shale.Db.open("db", store=store, wal=backend) as db:
        with pytest.raises(FencedError):
            await (await old.put(b"1", b"v1")).durable()
        assert await rows_of(db) == [(b"0", b"v0")]
        with pytest.raises(FencedError):
            await old.close()


async def test_two_writers_of_one_epoch_are_a_panic() -> None:
    backend = MemoryWalBackend()
    wal = WalStore(WalBackendStore(backend), "db")
    assert await wal.try_put_fence(1, epoch=3)
    with pytest.raises(ProtocolPanic):
        await wal.put_or_raise_fenced(1, b"rows", epoch=3)
    with pytest.raises(FencedError):
        await wal.put_or_raise_fenced(1, b"rows", epoch=2)


async def test_gc_deletes_files_that_replay_does_not_need() -> None:
    backend = MemoryWalBackend()
    store = await crashed(backend)
    async with shale.Db.open("db", store=store, wal=backend) as db:
        await db.flush("memtable")
    needed = (await latest(store)).replay_after_wal_id
    before = sorted(backend.files["db"])
    now = TaskOptions(min_age_s=0)
    async with shale.Admin("db", store=store, wal=backend) as admin:
        progress = await admin.gc.run_once(GcOptions(wal=now))
        assert not (await admin.verify(deep=True)).findings
    fences = [wal_id for wal_id in before if not backend.files["db"].get(wal_id, (None, b"x"))[1]]
    assert sorted(backend.files["db"]) == sorted({*fences, *(wal_id for wal_id in before if wal_id >= needed)})
    assert progress["wal"].deleted == 3


async def test_a_reader_reads_the_rows_in_the_backend() -> None:
    backend, store = MemoryWalBackend(), MemoryStore()
    async with shale.Db.open("db", store=store, wal=backend, flush_interval=0) as db:
        await (await db.put(b"0", b"v0")).durable()
        async with shale.DbReader.open("db", store=store, wal=backend) as reader:
            assert await rows_of(reader) == [(b"0", b"v0")]
            await (await db.put(b"1", b"v1")).durable()
            await reader.refresh()
            assert await rows_of(reader) == ROWS[:2]


async def test_a_clone_has_its_wal_in_the_backend() -> None:
    backend = MemoryWalBackend()
    store = await crashed(backend)
    async with shale.Db.open("db", store=store, wal=backend) as db:
        await db.put(b"3", b"v3")
        await db.checkpoint(scope="durable")
    async with shale.Admin("copy", store=store, wal=backend) as admin:
        await admin.clones.create("db")
    async with shale.Db.open("copy", store=store, wal=backend) as db:
        assert await rows_of(db) == [*ROWS, (b"3", b"v3")]


async def test_destroying_the_database_deletes_its_files_in_the_backend() -> None:
    backend = MemoryWalBackend()
    store = await crashed(backend)
    async with shale.Admin("db", store=store, wal=backend) as admin:
        await admin.destroy(DestroyMode.HARD, confirm=True)
    assert not backend.files["db"]


async def test_several_files_are_written_at_the_same_time() -> None:
    backend = MemoryWalBackend()
    store = await crashed(backend, max_parallel_writes=3)
    assert (await latest(store)).max_parallel_writes == 3
    async with shale.Db.open("db", store=store, wal=backend) as db:
        assert await rows_of(db) == ROWS


async def test_slatedb_and_processes_without_the_backend_are_refused() -> None:
    backend = MemoryWalBackend("orders-log")
    store = await crashed(backend)
    found = await store.get(manifest_key("db", (await ManifestStore(store, "db", Env.system()).read_latest()).id))
    assert found is not None
    assert bytes(found.data[:2]) == b"\xf0\xf2", "a version that SlateDB refuses"
    with pytest.raises(InvalidRequestError, match="'orders-log', which is passed as wal"):
        await shale.Db.open("db", store=store)
    with pytest.raises(InvalidRequestError, match="'other' was passed"):
        await shale.Db.open("db", store=store, wal=MemoryWalBackend("other"))
    with pytest.raises(InvalidRequestError, match="orders-log"):
        await shale.DbReader.open("db", store=store)
    async with shale.Admin("db", store=store) as admin:
        with pytest.raises(InvalidRequestError, match="orders-log"):
            await admin.gc.run_once(GcOptions())
    async with shale.DbReader.open("db", store=store, skip_wal_replay=True) as reader:
        assert await rows_of(reader) == []


async def test_a_database_with_its_wal_in_a_store_stays_so() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store):
        pass
    with pytest.raises(InvalidRequestError, match="keeps its WAL in a store"):
        await shale.Db.open("db", store=store, wal=MemoryWalBackend())


async def test_calls_that_fail_are_repeated_and_a_lost_response_is_no_conflict() -> None:
    backend = FlakyBackend(lost_puts=2)
    store = await crashed(backend)
    backend.failed_reads = 2
    async with shale.Db.open("db", store=store, wal=backend) as db:
        assert await rows_of(db) == ROWS


def test_impossible_arguments_are_refused() -> None:
    backend: shale.WalBackend = MemoryWalBackend()
    with pytest.raises(InvalidRequestError, match="wal and wal_store"):
        shale.Db.open("db", store=MemoryStore(), wal=backend, wal_store=MemoryStore())
    with pytest.raises(InvalidRequestError, match="two-phase"):
        shale.Db.open("db", store=MemoryStore(), wal=backend, store_options=StoreOptions(cas=CasMode.TWO_PHASE))
    for name in ("", "a/b", "a b", "ü"):
        with pytest.raises(InvalidRequestError, match="the name of the WAL backend"):
            shale.Db.open("db", store=MemoryStore(), wal=MemoryWalBackend(name))


class BrokenDelete(MemoryWalBackend):
    async def delete(self, path: str, wal_ids: Sequence[int]) -> None:
        raise OSError(f"{path} is read-only")


async def test_only_whole_wal_files_are_stored() -> None:
    store = WalBackendStore(BrokenDelete())
    key = wal_key("a/b", 7)
    await store.put(key, [b"ro", b"ws"], mode=CREATE)
    with pytest.raises(AlreadyExists):
        await store.put(key, b"rows", mode=CREATE)
    assert bytes(await store.get_range(key, 1, 3) or b"") == b"ow"
    assert await store.get_range(wal_key("a/b", 8), 0, 1) is None
    with pytest.raises(CorruptionError):
        await store.get_range(key, 0, 5)
    with pytest.raises(InvalidRequestError):
        await store.put(key, b"rows", mode=OVERWRITE)
    with pytest.raises(InvalidRequestError):
        await store.put("a/b/manifest/1", b"rows", mode=CREATE)
    assert [meta.key for meta in await store.list("a/b/")] == [key]
    errors = await store.delete_many([key])
    assert isinstance(errors[key], UnavailableError)
