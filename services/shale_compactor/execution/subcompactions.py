"""Divide a compaction into key ranges of similar size (docs/reference/protocol.md 6.12).

The block indexes of the inputs are sampled into anchors: a key and the bytes after it.  A scan over all anchors in
key order places a boundary each time another share of the bytes has passed.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import anyio

from shale.concurrency.first_error import first_error
from shale.kernels.rows import I64
from shale.sst.reader import SstReader
from shale.types import EVERYTHING, KeyRange
from shale_compactor.execution.job import Job

ANCHORS_PER_VIEW_MAX = 128


class Anchor(NamedTuple):
    """The first key of a group of blocks and the bytes of the group."""

    key: bytes
    size_bytes: int


def sample_anchors(
    first_keys: Sequence[bytes], offsets: Sequence[int] | I64, data_end: int, visible: KeyRange
) -> list[Anchor]:
    """Return one anchor for each group of blocks of an input view; anchors outside ``visible`` are dropped.

    Args:
        first_keys: separator of each block from the index.
        offsets: start of each block in bytes.
        data_end: end of the last block (``filter_offset``).
        visible: the effective range of the view.
    """
    stride = max(1, -(-len(first_keys) // ANCHORS_PER_VIEW_MAX))
    starts = range(0, len(first_keys), stride)
    ends = [*(offsets[start] for start in starts[1:]), data_end]
    anchors = [Anchor(first_keys[i], max(0, int(end - offsets[i]))) for i, end in zip(starts, ends, strict=True)]
    return [anchor for anchor in anchors if visible.contains(anchor.key)]


def plan_ranges(
    anchors: Sequence[Anchor], *, max_subcompactions: int, largest_input_bytes: int
) -> tuple[KeyRange, ...]:
    """Cover all keys with at most ``max_subcompactions`` ranges, each about as large as the largest input or larger."""
    total = sum(anchor.size_bytes for anchor in anchors)
    target = max(total // max(1, max_subcompactions), largest_input_bytes)
    if max_subcompactions <= 1 or target == 0 or target >= total:
        return (EVERYTHING,)
    return _between(_boundaries(sorted(anchors), max_subcompactions - 1, target))


def _boundaries(anchors: Sequence[Anchor], boundaries_max: int, target: int) -> list[bytes]:
    boundaries: list[bytes] = []
    last = anchors[0].key
    passed, threshold = 0, target
    for anchor in anchors:
        if passed >= threshold and len(boundaries) < boundaries_max and anchor.key > last:
            boundaries.append(anchor.key)
            last = anchor.key
            # The next multiple of the target, not ``passed + target``: overshoots must not add up.
            threshold += target
        passed += anchor.size_bytes
    return boundaries


def _between(boundaries: Sequence[bytes]) -> tuple[KeyRange, ...]:
    edges = [None, *boundaries, None]
    return tuple(KeyRange.half_open(start, end) for start, end in itertools.pairwise(edges))


_READS_MAX = 16


async def ranges_of(job: Job, reader: SstReader, *, max_subcompactions: int) -> tuple[KeyRange, ...]:
    """Return key ranges of similar size that cover all keys.

    Raises:
        CorruptionError: an index is malformed.
        UnavailableError: the store gave up.
    """
    if max_subcompactions <= 1:
        return plan_ranges([], max_subcompactions=1, largest_input_bytes=0)
    anchors: list[Anchor] = []
    reads = anyio.Semaphore(_READS_MAX)

    async def sample(index: int) -> None:
        view = job.views[index]
        async with reads:
            block_index = (await reader.meta(view.sst)).index
        data_end = view.sst.info.data_len
        anchors.extend(sample_anchors(block_index.separators, block_index.offsets, data_end, view.effective_range))

    try:
        async with anyio.create_task_group() as tasks:
            for index in range(len(job.views)):
                tasks.start_soon(sample, index)
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    return plan_ranges(
        anchors,
        max_subcompactions=max_subcompactions,
        largest_input_bytes=max((view.sst.estimated_size_bytes for view in job.views), default=0),
    )
