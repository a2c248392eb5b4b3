"""Bringing SSTs of a view into the cache before they are read, and out of it.

Source: SlateDB rfcs/0023-cache-manager.md; there it is one SST per call, here also a range of keys.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from shale.engine.read_view import ReadView
from shale.errors import InvalidRequestError
from shale.sst.reader import SstReader
from shale.sst.source import span_end
from shale.store.gather import gather
from shale.types import KeyRange, SstView

_SPAN_BYTES = 1 << 20
_SPANS_AT_ONCE = 4
_SSTS_AT_ONCE = 16


class CacheTarget(StrEnum):
    """What of an SST is brought into the cache.  Index, filters and stats come together, whichever is named."""

    FILTERS = "filters"
    INDEX = "index"
    STATS = "stats"
    DATA = "data"


ALL_TARGETS = (CacheTarget.INDEX, CacheTarget.FILTERS, CacheTarget.STATS, CacheTarget.DATA)


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a call brought in, or found there."""

    ssts: int = 0
    blocks: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Warmed") -> "Warmed":
        return Warmed(self.ssts + other.ssts, self.blocks + other.blocks, self.size_bytes + other.size_bytes)


def checked_targets(targets: Collection[CacheTarget | str] | None) -> frozenset[CacheTarget]:
    """Understand targets; ``None``: all.

    Raises:
        InvalidRequestError: an unknown one.
    """
    try:
        return frozenset(CacheTarget(target) for target in (ALL_TARGETS if targets is None else targets))
    except ValueError as error:
        raise InvalidRequestError(f"targets: {error}: choose of filters, index, stats, data") from None


def views_of(view: ReadView, key_range: KeyRange, sst_id: str | None = None) -> list[tuple[SstView, KeyRange]]:
    """The SSTs, or the views of one, that show keys of a range, with the part that each shows."""
    return [
        (shown, part)
        for shown, part in _shown(view, key_range)
        if not part.is_empty and sst_id in (None, str(shown.sst.id))
    ]


def _shown(view: ReadView, key_range: KeyRange) -> Iterator[tuple[SstView, KeyRange]]:
    for _, within, tree in view.trees_in(key_range):
        for shown in tree.views():
            yield shown, shown.effective_range.intersect(within)


async def warm_views(
    reader: SstReader, shown: Sequence[tuple[SstView, KeyRange]], targets: frozenset[CacheTarget]
) -> Warmed:
    """Bring in what the targets say of these SSTs, in the order given.

    Raises:
        SstMissing, CorruptionError: an SST is gone or malformed; those before it are warm.
    """
    if not targets:
        return Warmed()
    warmed = Warmed()
    for start in range(0, len(shown), _SSTS_AT_ONCE):
        some = shown[start : start + _SSTS_AT_ONCE]
        metas = await gather([partial(reader.meta, view.sst) for view, _ in some])
        warmed += Warmed(ssts=len(some), size_bytes=sum(meta.size_bytes for meta in metas))
        if CacheTarget.DATA in targets:
            for view, part in some:
                warmed += await _warm_blocks(reader, view, part)
    return warmed


async def _warm_blocks(reader: SstReader, view: SstView, part: KeyRange) -> Warmed:
    slot = reader.slot(view.sst)
    meta = await reader.load(slot)
    first, last = meta.index.block_range(part)
    spans = []
    at = first
    while at < last:
        end = span_end(meta.index.offsets, at, last, _SPAN_BYTES)
        spans.append((at, end))
        at = end
    size_bytes = 0
    for start in range(0, len(spans), _SPANS_AT_ONCE):
        reads = [partial(reader.images, slot, meta, *span) for span in spans[start : start + _SPANS_AT_ONCE]]
        size_bytes += sum(len(image) for images in await gather(reads) for image in images)
    return Warmed(blocks=max(0, last - first), size_bytes=size_bytes)


def evict_views(reader: SstReader, shown: Sequence[tuple[SstView, KeyRange]], *, disk: bool) -> None:
    """Drop from memory what these SSTs have in these ranges; an SST that shows nothing else goes as a whole."""
    for view, part in shown:
        slot = reader.slot(view.sst)
        first, last = slot.meta.index.block_range(part) if slot.meta is not None else (0, 0)
        if part == view.effective_range or (slot.meta is not None and (first, last) == (0, len(slot.meta.index))):
            reader.evict(slot, disk=disk)
        else:
            reader.evict_blocks(slot, first, last)
