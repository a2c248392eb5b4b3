"""The WAL buffer: which rows go into which file."""

from random import Random

import pytest

from shale.engine.memtable.memtable import Memtable
from shale.engine.wal.buffer import WalBuffer
from shale.engine.write.batch import WriteBatch
from shale.kernels.rows import concat_rows, entries_from_rows, rows_from_entries
from shale.sst.wal_builder import build_wal_sst, wal_sst_parts
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry


def put(table: Memtable, *seqs: int) -> None:
    for seq in seqs:
        table.append(Entry(b"%d" % seq, b"v", seq, FLAG_CREATE_TS, seq * 10))


def seqs_of(buffer: WalBuffer) -> list[tuple[int, list[int]]]:
    return [
        (file.id, [entry.seq for entry in entries_from_rows(concat_rows([*file.pieces()]))]) for file in buffer.files
    ]


def test_each_row_goes_into_exactly_one_file_in_order() -> None:
    table = Memtable()
    buffer = WalBuffer(7, table)
    buffer.freeze()
    put(table, 1, 2)
    buffer.freeze()
    buffer.freeze()
    put(table, 3)
    buffer.freeze()
    assert seqs_of(buffer) == [(7, [1, 2]), (8, [3])]
    assert (buffer.files[0].first_seq, buffer.files[0].last_seq, buffer.files[0].first_create_ts) == (1, 2, 10)


def test_a_file_may_reach_over_the_seam_between_two_memtables() -> None:
    table = Memtable()
    buffer = WalBuffer(1, table)
    put(table, 1)
    buffer.freeze()
    put(table, 2)
    table = Memtable()
    buffer.set_active(table)
    put(table, 3)
    assert buffer.pending_bytes == 2 * (2 + 28)
    buffer.freeze()
    assert seqs_of(buffer) == [(1, [1]), (2, [2, 3])]
    assert buffer.files[1].row_count == 2


def test_a_large_commit_gets_a_file_of_its_own() -> None:
    table = Memtable()
    buffer = WalBuffer(1, table)
    put(table, 1, 2)
    batch = WriteBatch()
    batch.put(b"a", bytes(500))
    batch.put(b"b", bytes(500))
    table.append_commit(batch.commit_rows(None), 3, 30)
    whole = buffer.size_bytes
    assert not buffer.separate_last_commit(1059)
    assert buffer.separate_last_commit(1058)
    put(table, 4)
    assert seqs_of(buffer) == [(1, [1, 2]), (2, [3, 3])]
    assert [file.size_bytes for file in buffer.files] == [60, 1058]
    assert (buffer.pending_bytes, buffer.size_bytes) == (30, whole + 30)


def test_the_first_commit_and_columns_can_be_separate() -> None:
    table = Memtable()
    buffer = WalBuffer(1, table)
    assert not buffer.separate_last_commit(1)
    put(table, 1)
    assert buffer.separate_last_commit(1)
    put(table, 2)
    buffer.append_columns(rows_from_entries([Entry(b"k", bytes(100), 3, FLAG_CREATE_TS, 1)]))
    assert buffer.separate_last_commit(100)
    assert not buffer.separate_last_commit(1), "it is in a file already"
    assert seqs_of(buffer) == [(1, [1]), (2, [2]), (3, [3])]


def test_replayed_rows_are_not_written_again() -> None:
    replayed = rows_from_entries([Entry(b"old", b"", 1, FLAG_CREATE_TS, 1)])
    table = Memtable.from_rows(replayed, writable=True)
    buffer = WalBuffer(2, Memtable())
    buffer.set_active(table)
    buffer.freeze()
    assert not buffer.files
    put(table, 2)
    buffer.freeze()
    assert seqs_of(buffer) == [(2, [2])]


def test_sizes_are_what_is_not_written_yet() -> None:
    table = Memtable()
    buffer = WalBuffer(1, table)
    put(table, 1, 2)
    whole = buffer.size_bytes
    buffer.freeze()
    assert (buffer.size_bytes, buffer.pending_bytes) == (whole, 0)
    put(table, 3)
    buffer.remove_written()
    assert buffer.size_bytes == buffer.pending_bytes == whole // 2


def test_rows_appended_later_do_not_slip_into_a_file() -> None:
    table = Memtable()
    buffer = WalBuffer(1, table)
    put(table, 1)
    buffer.freeze()
    put(table, 2)
    table.adopt(table.freeze())
    assert seqs_of(buffer) == [(1, [1])]


def test_a_batch_becomes_rows_of_one_commit_in_key_order() -> None:
    batch = WriteBatch()
    batch.put(b"b", b"1", ttl="1s")
    batch.put(b"c", b"2")
    batch.delete(b"a")
    batch.put(b"c", b"3")
    batch.put(b"b", b"4")
    rows = batch.commit_rows(None)
    assert (rows.keys, rows.values, bytes(rows.flags), rows.lifetimes) == (
        [b"a", b"b", b"c"],
        [b"", b"4", b"3"],
        b"\5\4\4",
        [],
    )
    rows = batch.commit_rows(500)
    assert (bytes(rows.flags), rows.lifetimes) == (b"\5\6\6", [(1, 500), (2, 500)])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_file_has_the_same_bytes_in_pieces(compression: Compression) -> None:
    """Blocks, index keys and shared prefixes go on from one piece to the next."""
    rng = Random(3)
    table = Memtable()
    buffer = WalBuffer(1, table)
    for seq in range(1, 9_000):
        for key in sorted({b"%06d" % rng.randrange(10**6) for _ in range(rng.choice([1, 1, 3]))}):
            flags = FLAG_CREATE_TS | rng.choice([0, FLAG_EXPIRE_TS, FLAG_TOMBSTONE, FLAG_MERGE])
            value = b"" if flags & FLAG_TOMBSTONE else rng.randbytes(rng.randrange(120))
            table.append(Entry(key, value, seq, flags, seq, seq + 9 if flags & FLAG_EXPIRE_TS else 0))
    buffer.freeze()
    (file,) = buffer.files
    pieces = [*file.pieces()]
    assert len(pieces) > 5
    assert b"".join(wal_sst_parts(pieces, compression)) == build_wal_sst(concat_rows(pieces), compression)
