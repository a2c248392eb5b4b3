"""A database of any size that exists only as its manifest: SSTs of 64 MiB in runs and L0s, without the rows.

Keys are 16 hexadecimal digits of a number of 64 bits.  An SST holds ``ROWS`` keys at equal distances, so that its
content follows from its number range (``tests.bench.scale.store``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from shale.format.sst.filter_policy import FixedPrefix
from shale.types import (
    FilterFormat,
    Manifest,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Tree,
    Ulid,
)

BLOCK_BYTES = 4096
BLOCK_ROWS = 4
BLOCKS = 16_384
ROWS = BLOCKS * BLOCK_ROWS
SST_BYTES = BLOCKS * BLOCK_BYTES
CREATED_MS = 1_700_000_000_000
LAST_SEQ = 1_000_000
_RUNS_MAX = 40
_L0_MAX = 100
_SEGMENT_DIGITS = 3
_SEGMENT_RUNS = 4
EXTRACTOR = FixedPrefix("fixed3", _SEGMENT_DIGITS)


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an SST's keys lie: ``ROWS`` numbers from ``start`` on, ``step`` apart."""

    start: int
    step: int

    @classmethod
    def of(cls, start: int, end: int) -> "Extent":
        """Spread the keys over ``[start, end)``."""
        return cls(start, (end - start) // ROWS)

    def number(self, row: int) -> int:
        """Return the number of a row's key."""
        return self.start + row * self.step


@dataclass(frozen=True, slots=True)
class SectionSizes:
    """Bytes of the sections after the blocks, the same in every SST."""

    filter: int
    index: int
    stats: int


@dataclass(frozen=True, slots=True)
class ScaleShape:
    """How many SSTs there are, and in which trees: ``segments`` 0 is one tree."""

    ssts: int
    segments: int = 0

    @property
    def l0_count(self) -> int:
        """L0s beside the SSTs in runs."""
        return min(_L0_MAX, max(1, self.ssts // 16))

    @property
    def label(self) -> str:
        """The size, and the segments if there are any."""
        total = self.ssts * SST_BYTES / (1 << 30)
        size = f"{total / 1000:.0f} TB" if total >= 1000 else f"{total:.0f} GB"
        return f"{size}, {self.segments:,} segments" if self.segments else size


def key_of(number: int) -> bytes:
    """Return the key of a number."""
    return b"%016x" % number


def trees_of(shape: ScaleShape) -> Iterator[tuple[bytes, list[Extent], list[list[Extent]]]]:
    """Yield the prefix, the extents of L0s and those of runs of each tree; L0s cover their whole tree."""
    if not shape.segments:
        runs = min(_RUNS_MAX, max(1, shape.ssts // 4))
        yield b"", [Extent.of(number, 1 << 63) for number in range(shape.l0_count)], _runs(shape.ssts, runs, 0, 1 << 63)
        return
    width = 1 << 64 - 4 * _SEGMENT_DIGITS
    segments = min(shape.segments, shape.ssts)
    for segment in range(segments):
        start, end = segment * width, (segment + 1) * width
        ssts = _share(shape.ssts, segments, segment)
        l0 = [Extent.of(start, end)] * _share(shape.l0_count, segments, segment)
        yield b"%03x" % segment, l0, _runs(ssts, min(ssts, _SEGMENT_RUNS), start, end)


def _share(total: int, parts: int, part: int) -> int:
    return (part + 1) * total // parts - part * total // parts


def _runs(ssts: int, runs: int, start: int, end: int) -> list[list[Extent]]:
    """Return ``runs`` runs that cover the range; each begins at another number, so that no two SSTs are equal."""
    found = []
    for run in range(runs):
        parts = _share(ssts, runs, run)
        width = (end - start) // max(1, parts)
        found.append([Extent.of(start + run + part * width, start + (part + 1) * width) for part in range(parts)])
    return found


def extents_of(shape: ScaleShape) -> dict[Ulid, Extent]:
    """Return the extent of each SST by id: of every tree the runs, then the L0s."""
    extents = (extent for _, l0, runs in trees_of(shape) for group in (*runs, l0) for extent in group)
    return {_id_of(number): extent for number, extent in enumerate(extents)}


def manifest_of(shape: ScaleShape, sizes: SectionSizes) -> Manifest:
    """Return the manifest, with SSTs in the order of ``extents_of``."""
    numbers = count()

    def views(extents: list[Extent]) -> tuple[SstView, ...]:
        return tuple(SstView.identity(Sst(id=_id_of(next(numbers)), info=info_of(extent, sizes))) for extent in extents)

    run_ids = count(1_000_000, -1)
    trees = []
    for prefix, l0, runs in trees_of(shape):
        compacted = tuple(SortedRun(id=RunId(next(run_ids)), ssts=views(run)) for run in runs)
        trees.append(Segment(prefix=prefix, tree=Tree(l0=views(l0)[::-1], compacted=compacted)))
    return Manifest(
        tree=Tree() if shape.segments else trees[0].tree,
        segments=tuple(trees) if shape.segments else (),
        segment_extractor_name=EXTRACTOR.name if shape.segments else None,
        last_l0_seq=Seq(LAST_SEQ),
        last_l0_clock_tick=CREATED_MS,
    )


def _id_of(number: int) -> Ulid:
    return Ulid(CREATED_MS + number << 80 | number)


def info_of(extent: Extent, sizes: SectionSizes) -> SstInfo:
    """Return the footer of an SST."""
    index_offset = SST_BYTES + sizes.filter
    return SstInfo(
        first_entry=key_of(extent.start),
        last_entry=key_of(extent.number(ROWS - 1)),
        filter_offset=SST_BYTES,
        filter_len=sizes.filter,
        index_offset=index_offset,
        index_len=sizes.index,
        stats_offset=index_offset + sizes.index,
        stats_len=sizes.stats,
        filter_format=FilterFormat.COMPOSITE,
    )
