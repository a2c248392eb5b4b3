"""Cutting one compaction into key ranges of similar size (docs/protocol.md 6.12).

The block indexes of the inputs are sampled into anchors, a key and the bytes that follow it; a sweep over all anchors
in key order places a boundary whenever another share of the bytes has gone by.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from shale.kernels.rows import I64
from shale.types import EVERYTHING, KeyRange

ANCHORS_PER_VIEW_MAX = 128


class Anchor(NamedTuple):
    """The first key of a group of blocks and the bytes of the group."""

    key: bytes
    size_bytes: int


def sample_anchors(
    first_keys: Sequence[bytes], offsets: Sequence[int] | I64, data_end: int, visible: KeyRange
) -> list[Anchor]:
    """Group the blocks of one input view; anchors outside ``visible`` are dropped.

    Args:
        first_keys: the first key of each block, as the index has it.
        offsets: where each block begins.
        data_end: where the last block ends (``filter_offset``).
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
    """Cover all keys with at most ``max_subcompactions`` ranges, none meant to be smaller than the largest input."""
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
            # The next multiple of the target, not ``passed + target``: an overshoot must not add up.
            threshold += target
        passed += anchor.size_bytes
    return boundaries


def _between(boundaries: Sequence[bytes]) -> tuple[KeyRange, ...]:
    edges = [None, *boundaries, None]
    return tuple(KeyRange.half_open(start, end) for start, end in itertools.pairwise(edges))
