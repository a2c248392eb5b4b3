"""Validation of persisted progress before a job continues from it (docs/reference/protocol.md 6.9, 6.11).

Another process, perhaps of another implementation, has written it.  Inconsistent progress fails only its own job:
continuing from it would lose rows or write them twice.
"""

from itertools import pairwise

from shale.errors import CorruptionError
from shale.types import CompactionContext


class DamagedProgress(CorruptionError):
    """Persisted progress from which no worker can continue."""


class ForeignProgress(DamagedProgress):
    """Another process has replaced the persisted progress; the next attempt continues from that."""

    retryable = True


def check_context(context: CompactionContext) -> None:
    """Check that a job can be resumed from this progress.

    Raises:
        DamagedProgress: the ranges do not cover all keys, overlap, or are not in key order.
    """
    ranges = [sub.range for sub in context.subcompactions]
    if not ranges:
        raise DamagedProgress("the persisted progress has no ranges")
    if ranges[0].first_key is not None or ranges[-1].end_key is not None:
        raise DamagedProgress("the ranges of the persisted progress do not cover all keys")
    for number, (left, right) in enumerate(pairwise(ranges)):
        if left.end_key is None or left.end_key != right.first_key:
            raise DamagedProgress(f"ranges {number} and {number + 1} of the persisted progress do not meet")


def validate_progress(stored: CompactionContext | None, ours: CompactionContext | None) -> str | None:
    """Return why the local progress does not continue the stored one; ``None`` if it does.

    Progress only grows: same ranges, same ``retention_min_seq``, and each list of outputs starts with the stored one.
    """
    if stored is None or ours is None:
        return None
    if ours.retention_min_seq != stored.retention_min_seq:
        return f"stored progress has the barrier {stored.retention_min_seq}, ours {ours.retention_min_seq}"
    if [sub.range for sub in ours.subcompactions] != [sub.range for sub in stored.subcompactions]:
        return "stored progress has other key ranges than ours"
    for number, (before, after) in enumerate(zip(stored.subcompactions, ours.subcompactions, strict=True)):
        if after.output_ssts[: len(before.output_ssts)] != before.output_ssts:
            return f"range {number} has stored outputs that are not ours"
    return None
