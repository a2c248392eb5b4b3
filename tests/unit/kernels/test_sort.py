"""The sorting kernel against its plain twin."""

from hypothesis import given
from hypothesis import strategies as st

from shale.engine.row_order import plain_order, take_rows
from shale.kernels import sort
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.types import Entry

PIECES = st.sampled_from([b"", b"\x00", b"a", b"ab", b"abcdefgh", b"abcdefg\x00", b"\xff" * 9, b"k" * 30])
KEYS = st.builds(lambda left, right: left + right, PIECES, PIECES).filter(bool)


@given(keys=st.lists(KEYS, max_size=200), shift=st.integers(0, 3))
def test_order_and_rows_are_those_of_the_twin(keys: list[bytes], shift: int) -> None:
    entries = [Entry(key, key * (seq % 3), seq * 7 % 211 + 1, seq % 4, seq, -seq) for seq, key in enumerate(keys)]
    rows = rows_from_entries(entries)
    rows = rows.slice(min(shift, len(rows)), len(rows))
    order = sort.row_order(rows)
    assert order.tolist() == plain_order(rows).tolist()
    assert entries_from_rows(sort.take_rows(rows, order)) == entries_from_rows(take_rows(rows, order))
