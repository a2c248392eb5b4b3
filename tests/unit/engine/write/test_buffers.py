"""The memory of a writer: what it holds, when a buffer is full, and the size at which a write must look."""

from typing import Any

import pytest

from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable
from shale.engine.options import MAX_VALUE_BYTES, DbOptions
from shale.engine.write.buffers import WriteBuffers
from shale.kernels.rows import rows_from_entries
from shale.types import FLAG_CREATE_TS, Entry, Manifest

LARGE = 1 << 30


def buffers_of(*row_bytes: int, **options: Any) -> WriteBuffers:
    """Return buffers with rows of these sizes."""
    chosen = {"l0_sst_size_bytes": LARGE, "max_unflushed_bytes": 8 * LARGE, **options}
    buffers = WriteBuffers(DbOptions(**chosen), Manifest(), 7)
    for size in row_bytes:
        write(buffers, size)
    return buffers


def write(buffers: WriteBuffers, row_bytes: int) -> None:
    """Append a row that counts as so many bytes."""
    buffers.active.append(row(buffers.active.last_seq + 1, row_bytes))


def row(seq: int, row_bytes: int) -> Entry:
    return Entry(b"k", bytes(row_bytes - 1 - ROW_OVERHEAD_BYTES), seq, FLAG_CREATE_TS, seq)


def freeze(buffers: WriteBuffers) -> None:
    buffers.freeze(wal_id=3, last_tick=4, segments=(b"",))
    buffers.set_active(Memtable())


@pytest.mark.parametrize(("row_bytes", "is_full"), [((), False), ((999,), False), ((500, 500), True), ((1001,), True)])
def test_a_memtable_is_full_at_the_size_of_an_l0_sst(row_bytes: tuple[int, ...], *, is_full: bool) -> None:
    assert buffers_of(*row_bytes, l0_sst_size_bytes=1000).is_memtable_full is is_full


@pytest.mark.parametrize(("row_bytes", "is_full"), [((), False), ((999,), False), ((500, 500), True), ((1001,), True)])
@pytest.mark.parametrize("options", [{"wal_flush_bytes": 1000}, {"l0_sst_size_bytes": 1000}])
def test_a_wal_file_is_full_at_its_limit(row_bytes: tuple[int, ...], options: dict[str, int], *, is_full: bool) -> None:
    buffers = buffers_of(*row_bytes, **options)
    assert buffers.is_wal_full is is_full
    buffers.freeze_wal()
    assert not buffers.is_wal_full, "the rows have a file now"


def test_a_disabled_wal_holds_nothing_and_is_never_full() -> None:
    buffers = buffers_of(500, 600, wal_enabled=False, wal_flush_bytes=1, skip_memtable_bytes=1)
    assert buffers.wal is None
    assert (buffers.wal_buffer_bytes, buffers.unflushed_bytes) == (0, 1100)
    assert not buffers.is_wal_full
    assert not buffers.is_draining
    assert not buffers.separate_large_commit()
    buffers.freeze_wal()
    freeze(buffers)
    assert buffers.is_draining
    assert (buffers.unflushed_bytes, len(buffers.active)) == (1100, 0)


def test_unflushed_bytes_are_those_of_all_tables_and_of_the_wal_buffer() -> None:
    buffers = buffers_of()
    assert buffers.wal is not None
    assert buffers.wal.next_id == 7
    assert (buffers.unflushed_bytes, buffers.is_draining) == (0, False)
    write(buffers, 300)
    assert (buffers.wal_buffer_bytes, buffers.unflushed_bytes, buffers.is_draining) == (300, 600, True)
    freeze(buffers)
    write(buffers, 50)
    assert (buffers.wal_buffer_bytes, buffers.unflushed_bytes, buffers.is_draining) == (350, 700, True)
    buffers.freeze_wal()
    assert (buffers.wal_buffer_bytes, buffers.unflushed_bytes) == (350, 700), "until the file is written"
    buffers.wal.remove_written()
    assert (buffers.wal_buffer_bytes, buffers.unflushed_bytes, buffers.is_draining) == (0, 350, True)
    buffers.frozen.retire(1)
    assert (buffers.unflushed_bytes, buffers.is_draining) == (50, False)


def test_what_was_written_is_counted_without_overhead_and_without_replayed_rows() -> None:
    buffers = buffers_of(100, 40)
    assert (buffers.rows_written, buffers.bytes_written) == (2, 140 - 2 * ROW_OVERHEAD_BYTES)
    freeze(buffers)
    replayed = Memtable()
    for seq in (3, 4, 5):
        replayed.append(row(seq, 90))
    buffers.count_replayed(replayed)
    buffers.set_active(replayed)
    assert (buffers.rows_written, buffers.bytes_written) == (2, 140 - 2 * ROW_OVERHEAD_BYTES)
    assert buffers.wal_buffer_bytes == 140, "replayed rows are in the WAL"
    write(buffers, 60)
    freeze(buffers)
    buffers.frozen.retire(2)
    more = Memtable()
    more.append(row(7, 30))
    buffers.count_replayed(more)
    buffers.set_active(more)
    assert (buffers.rows_written, buffers.bytes_written) == (3, 200 - 3 * ROW_OVERHEAD_BYTES)


@pytest.mark.parametrize(
    ("options", "separate"),
    [
        pytest.param({}, False, id="not wanted"),
        pytest.param({"skip_memtable_bytes": MAX_VALUE_BYTES}, False, id="larger than any value"),
        pytest.param({"skip_memtable_bytes": 201}, False, id="too small"),
        pytest.param({"skip_memtable_bytes": 200}, True, id="as large"),
    ],
)
def test_a_large_commit_gets_a_file_of_its_own(options: dict[str, int], *, separate: bool) -> None:
    buffers = buffers_of(50, 200, **options)
    assert buffers.separate_large_commit() is separate
    assert buffers.wal is not None
    assert [file.size_bytes for file in buffers.wal.files] == ([50, 200] if separate else [])


THRESHOLDS: list[tuple[dict[str, Any], tuple[int, ...], int]] = [
    ({"l0_sst_size_bytes": 1000}, (), 1000),
    ({"l0_sst_size_bytes": 1000}, (400,), 1000),
    ({"l0_sst_size_bytes": 1000, "wal_enabled": False}, (400,), 1000),
    ({"l0_sst_size_bytes": 1000, "wal_flush_bytes": 300}, (), 300),
    ({"l0_sst_size_bytes": 1000, "wal_flush_bytes": 300}, (100,), 300),
    ({"l0_sst_size_bytes": 1000, "wal_flush_bytes": 300, "wal_enabled": False}, (), 1000),
    ({"max_unflushed_bytes": LARGE + 1}, (), (LARGE + 1) // 2),
    ({"l0_sst_size_bytes": 1000, "max_unflushed_bytes": 1501}, (), 750),
    ({"l0_sst_size_bytes": 1000, "max_unflushed_bytes": 1501}, (300,), 300 + 450),
    ({"l0_sst_size_bytes": 1000, "max_unflushed_bytes": 1501}, (750,), 750),
    ({"l0_sst_size_bytes": 1000, "max_unflushed_bytes": 1501}, (900,), 900),
    ({"l0_sst_size_bytes": 1000, "skip_memtable_bytes": 200}, (), 200),
    ({"l0_sst_size_bytes": 1000, "skip_memtable_bytes": 200}, (300,), 500),
    ({}, (), LARGE),
]


@pytest.mark.parametrize(("options", "row_bytes", "expected"), THRESHOLDS)
def test_at_which_size_a_write_must_look_at_the_limits(
    options: dict[str, Any], row_bytes: tuple[int, ...], expected: int
) -> None:
    buffers = buffers_of(*row_bytes, **options)
    buffers.update_threshold()
    assert buffers.threshold_bytes == expected


def test_the_threshold_follows_new_tables_and_new_files() -> None:
    buffers = buffers_of(l0_sst_size_bytes=1000, wal_flush_bytes=300)
    write(buffers, 200)
    buffers.freeze_wal()
    assert buffers.threshold_bytes == 500, "the next file has none of the 200 bytes"
    write(buffers, 50)
    freeze(buffers)
    assert buffers.threshold_bytes == 250, "the pending rows of the old table go into the same file"


def test_the_fast_path_of_puts_ends_below_the_threshold_and_at_the_longest_key() -> None:
    buffers = buffers_of(l0_sst_size_bytes=1000, max_key_bytes=3)
    buffers.active.log.stamp_ahead(10, 1, 1, None)
    assert not buffers.active.append_plain(b"four", b"v")
    assert buffers.active.append_plain(b"key", bytes(500))
    assert not buffers.active.append_plain(b"key", bytes(1000 - 531 - 31))
    assert buffers.active.append_plain(b"key", bytes(1000 - 531 - 32))
    assert buffers.active.size_bytes == 999


def test_columns_count_in_both_buffers() -> None:
    buffers = buffers_of(100)
    assert buffers.wal is not None
    buffers.wal.append_columns(rows_from_entries([row(2, 80)]))
    assert (buffers.active.size_bytes, buffers.wal_buffer_bytes) == (180, 180)
