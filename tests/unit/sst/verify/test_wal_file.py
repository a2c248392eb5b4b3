"""One WAL file: sound files, every flipped byte, and contradictions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.kernels.rows import rows_from_entries
from shale.sst.verify.wal_file import verify_wal_file
from shale.sst.wal_builder import build_wal_sst
from shale.types import Compression, Entry
from tests.unit.kernels.strategies import ANY_ROWS


def file_of(entries: list[Entry], compression: Compression = Compression.NONE) -> memoryview:
    return memoryview(build_wal_sst(rows_from_entries(entries), compression))


def commit(seq: int, *keys: bytes) -> list[Entry]:
    return [Entry(key, b"value" * 20, seq, 0) for key in keys]


@given(ANY_ROWS, st.sampled_from(Compression))
def test_what_the_writer_makes_is_sound(entries: list[Entry], compression: Compression) -> None:
    unique = {(entry.seq, entry.key): entry for entry in entries}
    in_order = [unique[place] for place in sorted(unique)]
    verdict = verify_wal_file(file_of(in_order, compression), "w")
    assert verdict.findings == ()
    assert (verdict.rows, verdict.first_seq, verdict.last_seq) == (len(in_order), in_order[0].seq, in_order[-1].seq)


def test_fences_and_stumps() -> None:
    assert verify_wal_file(memoryview(b""), "w").findings == ()
    assert "too many for a fence" in str(verify_wal_file(memoryview(b"abc"), "w").findings[0])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_every_flipped_byte_is_found(compression: Compression) -> None:
    data = file_of([*commit(1, b"a", b"b"), *commit(2, b"a"), *commit(7, b"c")], compression)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        assert verify_wal_file(memoryview(bytes(flipped)), "w").findings, place


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([*commit(2, b"a"), *commit(1, b"b")], "seq 1 of row 1 follows seq 2"),
        ([*commit(1, b"z"), *commit(2, b"b", b"a")], "row 2 does not follow the one before in commit 2"),
        ([*commit(2, b"a", b"a")], "row 1 does not follow the one before in commit 2"),
    ],
)
def test_rows_out_of_order(entries: list[Entry], said: str) -> None:
    assert [finding.what for finding in verify_wal_file(file_of(entries), "w").findings] == [said]
