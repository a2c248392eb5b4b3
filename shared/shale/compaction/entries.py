"""Edits of the compactions: replace, add and drop entries.

Source: docs/reference/protocol.md 6.3.
"""

from collections.abc import Iterable
from dataclasses import replace

from shale.types import Compaction, Compactions, CompactionStatus

_USES_CAPACITY = (CompactionStatus.SUBMITTED, CompactionStatus.SCHEDULED, CompactionStatus.RUNNING)


def with_entries(compactions: Compactions, changed: Iterable[Compaction]) -> Compactions:
    """Replace or insert entries; the result is sorted by id."""
    by_id = {entry.id: entry for entry in compactions.entries}
    by_id.update((entry.id, entry) for entry in changed)
    return replace(compactions, entries=tuple(by_id[id_] for id_ in sorted(by_id)))


def with_entry(compactions: Compactions, entry: Compaction) -> Compactions:
    """Replace or insert one entry."""
    return with_entries(compactions, (entry,))


def retained(compactions: Compactions) -> Compactions:
    """Return the entries that a coordinator stores: all active ones and the finished one with the highest id.

    One finished entry is kept, because GC of ``compacted/`` derives its cutoff from it.
    """
    newest = max((entry.id for entry in compactions.entries if not entry.is_active), default=None)
    kept = tuple(entry for entry in compactions.entries if entry.is_active or entry.id == newest)
    return compactions if len(kept) == len(compactions.entries) else replace(compactions, entries=kept)


def count_using_capacity(compactions: Compactions) -> int:
    """Count Submitted, Scheduled and Running entries; a Compacted one needs no worker any more."""
    return sum(entry.status in _USES_CAPACITY for entry in compactions.entries)


def count_claimable(compactions: Compactions) -> int:
    """Count Scheduled and Running entries: those that need a worker now."""
    return sum(entry.status in (CompactionStatus.SCHEDULED, CompactionStatus.RUNNING) for entry in compactions.entries)


def with_status(compactions: Compactions, status: CompactionStatus) -> list[Compaction]:
    """Return the entries with one status, ascending by id."""
    return [entry for entry in compactions.entries if entry.status is status]


def finished(entry: Compaction, status: CompactionStatus) -> Compaction:
    """Return the entry as Completed or Failed, without worker and progress."""
    assert status.is_finished
    return replace(entry, status=status, worker=None, ctx=None)
