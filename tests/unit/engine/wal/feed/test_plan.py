"""Splitting a range of the WAL."""

from hypothesis import given
from hypothesis import strategies as st

from shale.engine.wal.feed.offset import FeedOffset
from shale.engine.wal.feed.plan import cut, end_id

SIZES = st.lists(st.one_of(st.just(0), st.integers(1, 1000)), max_size=60)


@given(first_id=st.integers(1, 2**40), sizes=SIZES, part_bytes=st.integers(1, 3000), parts_max=st.integers(1, 8))
def test_parts_hold_every_row_once_and_in_order(
    first_id: int, sizes: list[int], part_bytes: int, parts_max: int
) -> None:
    parts = cut(first_id, sizes, part_bytes=part_bytes, parts_max=parts_max)
    read = [wal_id for part in parts for wal_id in range(part.first_id, part.last_id + 1)]
    assert read == sorted(set(read))
    filled = {wal_id for wal_id, size in enumerate(sizes, first_id) if size}
    assert filled <= set(read) <= set(range(first_id, first_id + len(sizes)))
    assert len(parts) <= parts_max
    assert all(part.last_id in filled for part in parts[:-1]), "the next part asks this file where it ends"
    if sum(sizes) <= part_bytes:
        assert len(parts) == bool(filled)


@given(wal_id=st.integers(0, 100), frontier=st.integers(0, 100), max_files=st.one_of(st.none(), st.integers(1, 50)))
def test_a_batch_never_goes_back_nor_beyond(wal_id: int, frontier: int, max_files: int | None) -> None:
    last = end_id(FeedOffset(wal_id, 0), frontier, max_files)
    assert wal_id <= last <= max(wal_id, frontier)
    if frontier > wal_id:
        assert last == frontier if max_files is None or frontier - wal_id <= max_files else last == wal_id + max_files
