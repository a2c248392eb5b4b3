"""Split a range of WAL files into parts of similar size.  No I/O."""

from collections.abc import Sequence

from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.feed.offset import FeedOffset


@dataclass(frozen=True, slots=True)
class FeedPart:
    """The changes above ``after_seq`` in the files ``first_id`` to ``last_id``, both included.

    ``is_inside``: as in ``FeedOffset``.
    """

    first_id: int
    last_id: int
    after_seq: int
    is_inside: bool = False


@dataclass(frozen=True, slots=True)
class FileRange:
    """Files ``first_id`` to ``last_id``, both included; unless it is the last range, its last file has rows."""

    first_id: int
    last_id: int


def end_id(start: FeedOffset, frontier_id: int, max_files: int | None) -> int:
    """Return the last file of the next batch; ``start.wal_id`` if there is no new file."""
    if max_files is None:
        return max(start.wal_id, frontier_id)
    return max(start.wal_id, min(frontier_id, start.wal_id + max_files))


def cut(first_id: int, sizes: Sequence[int], *, part_bytes: int, parts_max: int) -> tuple[FileRange, ...]:
    """Cut files into ranges of about equal size; none if no file has rows.

    Args:
        first_id: the first file.
        sizes: bytes of rows per file, from ``first_id`` on; 0 for a file without rows.
        part_bytes: target size; a range ends with the file that reaches it.
        parts_max: maximum number of ranges; the target size grows to stay within it.
    """
    target = max(part_bytes, -(-sum(sizes) // parts_max), 1)
    ranges: list[FileRange] = []
    start, filled = first_id, 0
    for wal_id, size in enumerate(sizes, first_id):
        filled += size
        if filled >= target:
            ranges.append(FileRange(start, wal_id))
            start, filled = wal_id + 1, 0
    if filled:
        ranges.append(FileRange(start, first_id + len(sizes) - 1))
    return tuple(ranges)
