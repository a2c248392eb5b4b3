"""Rows that are read ahead of a takeover: which files are kept, and that replay takes none that has changed."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

import shale
from shale.engine.db import Db
from shale.engine.location import DatabaseLocation
from shale.engine.open import open_writer
from shale.engine.options import DbOptions
from shale.engine.wal.prefetch import WalPrefetch
from shale.errors import CorruptionError
from shale.format.names import wal_key
from shale.kernels.rows import entries_from_rows
from shale.protocol.wal_store import WalFile, WalStore
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, WalId
from tests.unit.engine.wal.test_replay import ENV, commit, wal_file

LARGE = 1 << 30
FILES = {1: b"", 2: wal_file(commit(1, b"a")), 3: wal_file(commit(2, b"b")), 4: wal_file(commit(3, b"c"))}


class CountedReads(MemoryStore):
    """Counts reads of whole objects."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, key: str) -> GetResult | None:
        self.reads.append(key)
        return await super().get(key)


def run(scenario: Callable[[CountedReads, WalStore], Awaitable[None]], files: dict[int, bytes] = FILES) -> None:
    async def main() -> None:
        store = CountedReads()
        for wal_id, data in files.items():
            await store.put(wal_key("db", wal_id), data)
        await scenario(store, WalStore(store, "db"))

    anyio.run(main)


def manifest(*, replay_after: int = 0, epoch: int = 1) -> Manifest:
    return Manifest(writer_epoch=epoch, replay_after_wal_id=WalId(replay_after))


async def taken(prefetch: WalPrefetch) -> dict[int, list[int]]:
    """Take everything, and return the sequence numbers of each file."""
    return {wal_id: [row.seq for row in entries_from_rows(rows)] for wal_id, rows in (await prefetch.take()).items()}


def test_it_follows_the_wal_to_its_end() -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest())
        assert prefetch.file_count == 4
        await store.put(wal_key("db", 5), wal_file(commit(4, b"d")))
        store.reads.clear()
        await prefetch.advance(manifest())
        assert wal_key("db", 4) not in store.reads, "a file was read twice"
        store.reads.clear()
        await prefetch.advance(manifest())
        assert store.reads == [wal_key("db", 6)], "without new files, one request"
        assert await taken(prefetch) == {1: [], 2: [1], 3: [2], 4: [3], 5: [4]}
        assert (prefetch.file_count, prefetch.size_bytes) == (0, 0)

    run(scenario)


def test_it_stops_at_its_limit_and_goes_on_after_a_flush() -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest(replay_after=3))
        file_bytes = prefetch.size_bytes
        prefetch = WalPrefetch(wal, ENV, bytes_max=2 * file_bytes)
        await prefetch.advance(manifest())
        assert prefetch.file_count == 3
        store.reads.clear()
        await prefetch.advance(manifest())
        assert store.reads == []
        await prefetch.advance(manifest(replay_after=2))
        assert prefetch.size_bytes == 2 * file_bytes
        assert await taken(prefetch) == {3: [2], 4: [3]}

    run(scenario)


def test_the_memory_is_about_that_of_the_rows() -> None:
    async def scenario(_store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest())
        # 41 bytes for the columns of a row, 16 for the end of the offsets.
        assert prefetch.size_bytes <= 100 * (1 + 1000 + 41) * 1.2
        (rows,) = (await prefetch.take()).values()
        assert len(rows.key_bytes) <= 2 * 100
        assert len(entries_from_rows(rows)) == 100

    run(scenario, {1: wal_file(*(commit(seq, b"k", size=1000) for seq in range(1, 101)))})


def test_it_stops_at_a_gap_and_goes_on_when_it_is_filled() -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest())
        assert prefetch.file_count == 2
        await store.put(wal_key("db", 3), FILES[3])
        await prefetch.advance(manifest())
        assert await taken(prefetch) == {1: [], 2: [1], 3: [2], 4: [3]}

    run(scenario, {wal_id: data for wal_id, data in FILES.items() if wal_id != 3})


def test_files_that_were_replaced_or_are_gone_are_not_taken() -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest())
        await store.put(wal_key("db", 2), wal_file(commit(9, b"z")))  # of the same size
        await store.put(wal_key("db", 3), b"")
        await store.delete(wal_key("db", 4))
        assert await taken(prefetch) == {1: []}

    run(scenario)


@pytest.mark.parametrize("later", [manifest(epoch=1, replay_after=1), manifest(epoch=2)])
def test_another_database_in_the_same_place_begins_anew(later: Manifest) -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await prefetch.advance(manifest(epoch=2, replay_after=1))
        assert prefetch.file_count == 3
        await store.put(wal_key("db", 3), wal_file(commit(9, b"z")))
        await prefetch.advance(later)
        assert (await taken(prefetch))[3] == [9]

    run(scenario)


def test_a_damaged_file_is_an_error_and_keeps_what_comes_before() -> None:
    async def scenario(store: CountedReads, wal: WalStore) -> None:
        prefetch = WalPrefetch(wal, ENV, bytes_max=LARGE)
        await store.put(wal_key("db", 3), b"no WAL file, but longer than a fence")
        for _ in range(2):
            with pytest.raises(CorruptionError):
                await prefetch.advance(manifest())
        assert set(await taken(prefetch)) <= {1, 2}

    run(scenario)


@pytest.mark.parametrize(
    ("read", "listed", "is_same"),
    [
        ('"a"', '"a"', True),
        ('"a"', '"b"', False),
        ('"a"#17', '"a"', True),
        ('"a"#17', '"b"', False),
        (None, '"a"', True),
        (None, None, True),
    ],
)
def test_a_file_is_recognized_by_its_etag(read: str | None, listed: str | None, is_same: bool) -> None:
    file = WalFile(WalId(1), 10, 0, read)
    assert file.is_same(replace(file, etag=listed, last_modified_ms=5)) is is_same
    assert not file.is_same(replace(file, size=11))


async def unflushed(store: MemoryStore, rows: int) -> None:
    """Write a database whose rows are all in the WAL, one file for each."""
    db = await shale.Db.open("db", store=store, compactor=False, gc=False)
    for number in range(rows):
        await (await db.put(b"%03d" % number, b"v%d" % number)).durable()
    await db.close(flush="wal")


@pytest.mark.slow
def test_replay_reads_only_what_was_not_prefetched() -> None:
    async def scenario() -> None:
        store = CountedReads()
        await unflushed(store, 40)
        where = DatabaseLocation(store, "db")
        metrics = Metrics()
        stores = where.connect(ENV, metrics, component="writer")
        database = where.connected(stores)
        prefetch = WalPrefetch(WalStore(stores.main, "db"), ENV, bytes_max=LARGE)
        await prefetch.advance(Manifest())
        assert prefetch.file_count == 41
        later = await shale.Db.open("db", store=store, compactor=False, gc=False)  # fences, and writes one more
        await (await later.put(b"999", b"later")).durable()
        await later.close(flush="wal")
        store.reads.clear()
        known = await prefetch.take()
        options = DbOptions(compactor=False, gc=False)
        writer = await open_writer(database, options, env=ENV, metrics=metrics, wal_rows=known)
        db = Db(writer, stores)
        try:
            read = {key for key in store.reads if "/wal/" in key}
            assert read == {wal_key("db", 42), wal_key("db", 43)}
            assert known == {}, "the rows are in memtables now"
            assert await db.get(b"039") == b"v39"
            assert await db.get(b"999") == b"later"
        finally:
            await db.close()

    anyio.run(scenario)
