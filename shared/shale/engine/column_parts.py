"""Rows that came into a memtable as sorted columns: few parts are made of many, because lookups ask each of them."""

from shale.engine.row_order import merged_parts
from shale.engine.sorted_part import SortedPart
from shale.env import Cpu

_PARTS_MAX = 24
"""More parts make lookups slow: they are merged."""


def are_scattered(parts: list[SortedPart]) -> bool:
    """Whether there are so many that ``gather_parts`` is due."""
    return len(parts) >= _PARTS_MAX


async def gather_parts(parts: list[SortedPart], cpu: Cpu) -> None:
    """Merge them into few, in place, without blocking the loop; others may be added meanwhile.

    A part that is more than twice as large as all behind it stays what it is, so many small commits cost a row O(log n)
    merges and not one for each of them.
    """
    start, count = len(parts), 0
    while start and (not count or len(parts[start - 1]) <= 2 * count):
        start -= 1
        count += len(parts[start])
    chosen = tuple(parts[start:])
    if len(chosen) < 2:
        return
    rows = await cpu.run(lambda: merged_parts([part.rows for part in chosen]))
    end = start + len(chosen)
    if tuple(parts[start:end]) == chosen:
        parts[start:end] = [SortedPart(rows)]
