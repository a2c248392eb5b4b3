"""Replay: rules of docs/reference/protocol.md 4.6, on WAL files made by the test."""

import random
from typing import Any

import anyio
import pytest

import shale
from shale.engine.wal.replay import ReplayedRows, replay_wal
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, WalTruncated
from shale.format.names import wal_key
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.types import FLAG_CREATE_TS, Compression, Entry

ENV = Env(SystemClock(), random.Random(1), InlineCpu())


def commit(seq: int, *keys: bytes, size: int = 10) -> list[Entry]:
    return [Entry(key, bytes(size), seq, FLAG_CREATE_TS, seq * 100) for key in keys]


def wal_file(*commits: list[Entry]) -> bytes:
    return build_wal_sst(rows_from_entries([entry for one in commits for entry in one]), Compression.NONE)


def replayed(files: dict[int, bytes], **options: Any) -> tuple[list[ReplayedRows], Exception | None]:
    """Replay, and return the tables and the error that ended it."""

    async def scenario() -> tuple[list[ReplayedRows], Exception | None]:
        store = MemoryStore()
        for wal_id, data in files.items():
            await store.put(wal_key("db", wal_id), data)
        chosen = {"first_id": 1, "last_id": 5, "min_seq": 0, "max_table_bytes": 1 << 20, **options}
        tables: list[ReplayedRows] = []
        try:
            async for table in replay_wal(WalStore(store, "db"), env=ENV, **chosen):
                tables.append(table)  # noqa: PERF401 - what came before an error counts
        except (WalTruncated, CorruptionError) as error:
            return tables, error
        return tables, None

    return anyio.run(scenario)


def seqs(table: ReplayedRows) -> list[int]:
    return [entry.seq for entry in entries_from_rows(table.rows)]


FILES = {
    1: b"",
    2: wal_file(commit(1, b"a"), commit(2, b"a", b"b")),
    3: wal_file(commit(3, b"c")),
    4: b"",
    5: wal_file(commit(4, b"a"), commit(7, b"b")),
}


def test_all_rows_in_one_table_of_bounded_size() -> None:
    tables, error = replayed(FILES)
    assert error is None
    (table,) = tables
    assert seqs(table) == [1, 2, 2, 3, 4, 7]
    assert (table.first_seq, table.last_seq, table.last_tick, table.consumed_wal_id) == (1, 7, 700, 5)
    assert table.size_bytes == 6 * (1 + 10 + 28)


def test_rows_that_are_in_l0_are_skipped_and_their_files_consumed() -> None:
    tables, _ = replayed(FILES, min_seq=3)
    assert [(seqs(table), table.consumed_wal_id) for table in tables] == [([4, 7], 5)]
    tables, _ = replayed(FILES, min_seq=7)
    assert [(seqs(table), table.consumed_wal_id, table.last_tick) for table in tables] == [([], 5, None)]


@pytest.mark.parametrize(
    ("max_table_bytes", "wanted"),
    [
        pytest.param(1, [([1], 1), ([2, 2], 2), ([3], 3), ([4], 4), ([7], 5), ([], 5)], id="a table per commit"),
        pytest.param(2 * 39, [([1, 2, 2], 2), ([3, 4], 4), ([7], 5)], id="never inside a commit"),
        pytest.param(4 * 39, [([1, 2, 2, 3], 3), ([4, 7], 5)], id="over the seam of files"),
    ],
)
def test_tables_end_between_commits_and_claim_only_whole_files(max_table_bytes: int, wanted: list[Any]) -> None:
    tables, _ = replayed(FILES, max_table_bytes=max_table_bytes)
    assert [(seqs(table), table.consumed_wal_id) for table in tables] == wanted


def test_a_missing_file_ends_it_after_what_was_read() -> None:
    files = {wal_id: data for wal_id, data in FILES.items() if wal_id != 3}
    tables, error = replayed(files)
    assert [(seqs(table), table.consumed_wal_id) for table in tables] == [([1, 2, 2], 2)]
    assert isinstance(error, WalTruncated)
    assert error.id == 3


def test_tiny_objects_hold_no_rows() -> None:
    tables, error = replayed({**FILES, 4: b"0123456789"})
    assert error is None
    assert seqs(tables[0])[-1] == 7


@pytest.mark.parametrize("late", [commit(3, b"x"), commit(1, b"x")], ids=["same seq", "lower seq"])
def test_files_out_of_order_are_refused(late: list[Entry]) -> None:
    _, error = replayed({**FILES, 4: wal_file(late)})
    assert isinstance(error, CorruptionError)
    assert error.path == wal_key("db", 4)


def test_files_of_old_releases_are_in_key_order() -> None:
    entries = [*commit(2, b"a"), *commit(1, b"b"), *commit(3, b"c")]
    tables, _ = replayed({1: build_wal_sst(rows_from_entries(entries), Compression.NONE)}, last_id=1)
    assert [(entry.key, entry.seq) for entry in entries_from_rows(tables[0].rows)] == [(b"b", 1), (b"a", 2), (b"c", 3)]


def test_damage_names_the_file() -> None:
    """Every flipped byte and every truncation either leaves the checked content unchanged or raises."""
    whole = FILES[2]
    good = seqs(replayed({1: whole}, last_id=1)[0][0])
    broken = 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x41
        for damaged in (bytes(flipped), whole[:place]):
            tables, error = replayed({1: damaged}, last_id=1)
            if error is not None:
                broken += 1
                assert isinstance(error, CorruptionError)
                assert error.path == wal_key("db", 1)
            else:
                assert seqs(tables[-1]) in (good, [])
    assert broken > len(whole)


def test_what_was_read_before_is_not_read_again() -> None:
    async def scenario() -> None:
        store = CountingReads()
        async with shale.Db.open("db", store=store, flush_interval=None) as db:
            for number in range(6):
                await db.put(b"%d" % number, b"")
                await db.flush("wal")
            await db.close("wal")
        store.reads.clear()
        async with shale.Db.open("db", store=store, flush_interval=None) as db:
            assert len([row async for row in db.scan()]) == 6
        assert sorted(key for key in store.reads if "/wal/" in key) == [f"db/wal/{n:020}.sst" for n in range(1, 8)]

    anyio.run(scenario)


class CountingReads(MemoryStore):
    """A store that records which objects were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, key: str) -> GetResult | None:
        self.reads.append(key)
        return await super().get(key)
