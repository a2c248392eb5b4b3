"""Loads SSTs of a view into the cache before they are read, and evicts them.

Source: SlateDB rfcs/0023-cache-manager.md; Shale also takes key ranges.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from functools import partial

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.read.super_version import SuperVersion
from shale.errors import InvalidRequestError
from shale.sst.meta import span_end
from shale.sst.reader import SstReader
from shale.types import KeyRange, SstView

_SPAN_BYTES = 1 << 20
_SPANS_AT_ONCE = 4
_SSTS_AT_ONCE = 16


class CacheTarget(StrEnum):
    """The parts of an SST to load.  Index, filters and stats are always loaded together."""

    FILTERS = "filters"
    INDEX = "index"
    STATS = "stats"
    DATA = "data"


ALL_TARGETS = (CacheTarget.INDEX, CacheTarget.FILTERS, CacheTarget.STATS, CacheTarget.DATA)


@dataclass(frozen=True, slots=True)
class WarmResult:
    """The SSTs, blocks and bytes that a call loaded or found in the cache."""

    ssts: int = 0
    blocks: int = 0
    size_bytes: int = 0

    def __add__(self, other: "WarmResult") -> "WarmResult":
        return WarmResult(self.ssts + other.ssts, self.blocks + other.blocks, self.size_bytes + other.size_bytes)


def parse_targets(targets: Collection[CacheTarget | str] | None) -> frozenset[CacheTarget]:
    """Parse targets; ``None``: all.

    Raises:
        InvalidRequestError: an unknown target.
    """
    try:
        return frozenset(CacheTarget(target) for target in (ALL_TARGETS if targets is None else targets))
    except ValueError as error:
        raise InvalidRequestError(f"targets: {error}: choose from filters, index, stats, data") from None


def views_of(view: SuperVersion, key_range: KeyRange, sst_id: str | None = None) -> list[tuple[SstView, KeyRange]]:
    """Return the views of SSTs that show keys in a range, each with the part of the range that it shows."""
    return [
        (shown, part)
        for shown, part in _shown(view, key_range)
        if not part.is_empty and sst_id in (None, str(shown.sst.id))
    ]


def _shown(view: SuperVersion, key_range: KeyRange) -> Iterator[tuple[SstView, KeyRange]]:
    for _, within, tree in view.trees.in_range(key_range):
        for shown in tree.views():
            yield shown, shown.effective_range.intersect(within)


async def warm_views(
    reader: SstReader, shown: Sequence[tuple[SstView, KeyRange]], targets: frozenset[CacheTarget]
) -> WarmResult:
    """Load the targets of these SSTs, in the given order.

    Raises:
        SstMissing, CorruptionError: an SST is missing or malformed; the ones before it are warm.
    """
    if not targets:
        return WarmResult()
    warmed = WarmResult()
    for start in range(0, len(shown), _SSTS_AT_ONCE):
        some = shown[start : start + _SSTS_AT_ONCE]
        metas = await gather([partial(reader.meta, view.sst) for view, _ in some])
        warmed += WarmResult(ssts=len(some), size_bytes=sum(meta.size_bytes for meta in metas))
        if CacheTarget.DATA in targets:
            for view, part in some:
                warmed += await _warm_blocks(reader, view, part)
    return warmed


async def _warm_blocks(reader: SstReader, view: SstView, part: KeyRange) -> WarmResult:
    slot = reader.slot(view.sst)
    meta = await reader.metadata.load(slot)
    first, last = meta.index.block_range(part)
    spans = []
    at = first
    while at < last:
        end = span_end(meta.index.offsets, at, last, _SPAN_BYTES)
        spans.append((at, end))
        at = end
    size_bytes = 0
    for start in range(0, len(spans), _SPANS_AT_ONCE):
        some = spans[start : start + _SPANS_AT_ONCE]
        reads = [partial(reader.data_blocks.images, slot, meta, *span) for span in some]
        size_bytes += sum(len(image) for images in await gather(reads) for image in images)
    return WarmResult(blocks=max(0, last - first), size_bytes=size_bytes)


def evict_views(reader: SstReader, shown: Sequence[tuple[SstView, KeyRange]], *, disk: bool) -> None:
    """Evict these ranges of SSTs from memory; an SST that shows nothing else is evicted as a whole."""
    for view, part in shown:
        slot = reader.slot(view.sst)
        first, last = slot.meta.index.block_range(part) if slot.meta is not None else (0, 0)
        if part == view.effective_range or (slot.meta is not None and (first, last) == (0, len(slot.meta.index))):
            reader.evict(slot, disk=disk)
        else:
            reader.evict_blocks(slot, first, last)
