"""What of the WAL is read next, and in how many parts.  Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shale.engine.wal_feed.offset import FeedOffset


@dataclass(frozen=True, slots=True)
class FeedPart:
    """The files ``first_id`` to ``last_id``, both included, of which the changes above ``after_seq`` are given.

    ``is_inside``: as in ``FeedOffset``.
    """

    first_id: int
    last_id: int
    after_seq: int
    is_inside: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Files ``first_id`` to ``last_id``, both included, that are not there."""

    first_id: int
    last_id: int

    def __str__(self) -> str:
        return f"{self.first_id}" if self.first_id == self.last_id else f"{self.first_id} to {self.last_id}"


@dataclass(frozen=True, slots=True)
class FileRange:
    """Files ``first_id`` to ``last_id``, both included; the last one has rows if others follow."""

    first_id: int
    last_id: int


def end_id(start: FeedOffset, frontier_id: int, max_files: int | None) -> int:
    """The last file of the next batch, ``start.wal_id`` if there is nothing new."""
    if max_files is None:
        return max(start.wal_id, frontier_id)
    return max(start.wal_id, min(frontier_id, start.wal_id + max_files))


def find_gaps(first_id: int, last_id: int, present: Collection[int]) -> tuple[Gap, ...]:
    """The stretches between two ids, both included, of which nothing is present."""
    gaps: list[Gap] = []
    for wal_id in range(first_id, last_id + 1):
        if wal_id in present:
            continue
        if gaps and gaps[-1].last_id == wal_id - 1:
            gaps[-1] = Gap(gaps[-1].first_id, wal_id)
        else:
            gaps.append(Gap(wal_id, wal_id))
    return tuple(gaps)


def cut(first_id: int, sizes: Sequence[int], *, part_bytes: int, parts_max: int) -> tuple[FileRange, ...]:
    """Cut files into stretches of about equal size; none if no file has rows.

    Args:
        first_id: the first file.
        sizes: bytes of rows of each file from there on, 0 where there are none.
        part_bytes: a stretch ends with the file that fills this much.
        parts_max: stretches grow until there are no more than these.
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
