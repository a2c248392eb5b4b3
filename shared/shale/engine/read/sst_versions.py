"""Point lookups that read from the store, in at most two round trips for any number of keys, L0s and runs.

The first trip reads the metadata of every SST that can show one of the keys.  The second reads every block that
filters and indexes do not exclude.  Both keep what they read until the lookup ends, so the cache may be too small.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from shale.concurrency.gather import gather
from shale.concurrency.read_ahead import READ_AHEAD_BYTES
from shale.engine.read.level import VisibleSst
from shale.engine.read.tree_lookup import append_versions, block_span
from shale.kernels.layout.point_lookup import ABSENT
from shale.sst.access_counts import AccessCounts
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.reads.data_blocks import has_blocks
from shale.sst.slot import SstSlot
from shale.types import Entry

_SMALL_READ_BYTES = 64 * 1024
_COALESCE_GAP_BYTES = 64 * 1024
"""Reading a gap of this size costs less than another request."""

Span = tuple[SstSlot, int, int]


async def read_versions(
    reader: SstReader,
    lookups: Sequence[tuple[bytes, Sequence[VisibleSst]]],
    max_seq: int,
    find: Callable[[int], Entry | int],
    *,
    keep: bool = True,
) -> list[list[Entry]]:
    """Return the versions of each key in SSTs, newest first, down to the first that is no merge operand.

    Args:
        reader: reads SSTs.
        lookups: keys with the SSTs that show them, newest first.
        max_seq: newer versions are left out.
        find: the search of the lookup at this place with a kernel, which is fast but sees only what the cache holds;
            it returns the value or tombstone, ``ABSENT``, or another status if it is not enough.
        keep: blocks that are read fill the cache.

    Raises:
        SstMissing: an SST is gone.
        CorruptionError: an SST is malformed.
    """
    slots = list(dict.fromkeys(sst.slot for _, ssts in lookups for sst in ssts))
    metas = dict(zip(slots, await gather([partial(reader.metadata.load, slot) for slot in slots]), strict=True))
    spans = [_spans(key, ssts, metas, reader.counts) for key, ssts in lookups]
    images = await _read_images(reader, dict.fromkeys(span for of_key in spans for span in of_key), metas, keep)
    decided = _find_all(len(lookups), reader.counts, images, find)
    versions: list[list[Entry]] = []
    for (key, _), of_key, found in zip(lookups, spans, decided, strict=True):
        if type(found) is Entry:
            versions.append([found])
        else:
            versions.append([] if found == ABSENT else _versions(key, of_key, metas, images, max_seq))
    for of_one, of_key in zip(versions, spans, strict=True):
        if not of_one:
            reader.counts.point_false_positives += sum(metas[slot].filters.answers_keys for slot, _, _ in of_key)
    return versions


def _find_all(
    count: int, counts: AccessCounts, images: Mapping[tuple[SstSlot, int], bytes], find: Callable[[int], Entry | int]
) -> list[Entry | int]:
    """Search for all keys.  This counts nothing, and marks no block as used: reading the blocks did so if it should."""
    unused = [(slot, block) for slot, block in images if block in slot.images and not slot.touched[block]]
    with counts.kernel_paused():
        decided = [find(place) for place in range(count)]
    for slot, block in unused:
        slot.touched[block] = 0
    return decided


def _spans(
    key: bytes, ssts: Iterable[VisibleSst], metas: Mapping[SstSlot, SstMeta], counts: AccessCounts
) -> list[Span]:
    spans = []
    for sst in ssts:
        meta = metas[sst.slot]
        span = block_span(meta, key)
        if meta.filters.answers_keys:
            counts.point_negatives += span is None
            counts.point_positives += span is not None
        if span is not None:
            spans.append((sst.slot, *span))
    return spans


def _versions(
    key: bytes,
    spans: Sequence[Span],
    metas: Mapping[SstSlot, SstMeta],
    images: Mapping[tuple[SstSlot, int], bytes],
    max_seq: int,
) -> list[Entry]:
    found: list[Entry] = []
    for slot, first, last in spans:
        offsets = metas[slot].index.offsets
        for block in range(first, last):
            image = images[slot, block]
            if append_versions(found, key, max_seq, image=image, slot=slot, offset=int(offsets[block])):
                return found
    return found


async def _read_images(
    reader: SstReader, spans: Iterable[Span], metas: Mapping[SstSlot, SstMeta], keep: bool
) -> dict[tuple[SstSlot, int], bytes]:
    wanted: dict[SstSlot, set[int]] = {}
    for slot, first, last in spans:
        wanted.setdefault(slot, set()).update(range(first, last))
    reads = [(slot, *span) for slot, blocks in wanted.items() for span in coalesce_spans(blocks, metas[slot])]
    await reader.cache.budget.admit(_large_bytes(reads, metas))
    results = await gather(
        [
            partial(reader.data_blocks.images, slot, metas[slot], first, last, keep=keep, is_admitted=True)
            for slot, first, last in reads
        ]
    )
    return {
        (slot, first + index): image
        for (slot, first, _), images in zip(reads, results, strict=True)
        for index, image in enumerate(images)
    }


def _large_bytes(reads: Iterable[Span], metas: Mapping[SstSlot, SstMeta]) -> int:
    """Return the bytes of all reads but small ones: together, so that none waits while another one has its memory."""
    sizes = []
    for slot, first, last in reads:
        offsets = metas[slot].index.offsets
        if not has_blocks(slot, metas[slot], first, last):
            sizes.append(int(offsets[last] - offsets[first]))
    return sum(size for size in sizes if size > _SMALL_READ_BYTES)


def coalesce_spans(blocks: Iterable[int], meta: SstMeta) -> list[tuple[int, int]]:
    """Return spans ``[first, last)`` that cover the blocks with few requests and little waste."""
    offsets = meta.index.offsets
    spans: list[tuple[int, int]] = []
    for block in sorted(blocks):
        if spans:
            first, last = spans[-1]
            gap = int(offsets[block] - offsets[last])
            if gap <= _COALESCE_GAP_BYTES and int(offsets[block + 1] - offsets[first]) <= READ_AHEAD_BYTES:
                spans[-1] = (first, block + 1)
                continue
        spans.append((block, block + 1))
    return spans
