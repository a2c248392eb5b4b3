"""Views with disjoint keys, in chains that are read like a sorted run."""

from bisect import bisect_left
from collections.abc import Iterable

from shale.types import SstView


def disjoint_chains(views: Iterable[SstView]) -> list[list[SstView]]:
    """Return views in chains, in their order: neighbours whose keys are disjoint, in the order of the keys.

    A chain is read as one source.  With a source for each view, a merge would hold a block of each from its start.

    Args:
        views: in order of precedence, for instance L0s, newest first.
    """
    chains: list[list[SstView]] = []
    starts: list[bytes] = []
    ends: list[bytes | None] = []
    for each in views:
        keys = each.effective_range
        start, end = keys.first_key or b"", keys.end_key
        at = bisect_left(starts, start)
        before = ends[at - 1] if at else b""
        is_apart = before is not None and before <= start and (at == len(starts) or _ends_by(end, starts[at]))
        if not chains or not is_apart:
            chains.append([each])
            starts, ends = [start], [end]
        else:
            chains[-1].insert(at, each)
            starts.insert(at, start)
            ends.insert(at, end)
    return chains


def _ends_by(end: bytes | None, key: bytes) -> bool:
    return end is not None and end <= key
