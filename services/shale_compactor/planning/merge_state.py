"""Merge the stored compactions into the coordinator's local state (docs/reference/protocol.md 6.6, step 1).

The coordinator schedules and finishes entries; workers move entries between Scheduled, Running and Compacted; admins
add Submitted ones.  Changes outside of these roles are ignored.  The exceptions are a cancellation by an admin and a
job that its worker has ended: an active entry that is stored as Failed becomes Failed in the local state, too
(docs/reference/protocol.md 6.9, 6.13).
"""

from collections.abc import Iterable

from shale.compaction.entries import with_entries
from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction, Compactions, CompactionStatus

_S = CompactionStatus
_ACCEPTED_NEW = frozenset({_S.SUBMITTED, _S.COMPACTED, _S.COMPLETED, _S.FAILED})
_ADOPTED: dict[CompactionStatus, frozenset[CompactionStatus]] = {
    _S.SUBMITTED: frozenset({_S.COMPACTED, _S.FAILED}),
    # Scheduled, too: a worker may claim and release between two polls, and its progress is kept.
    _S.SCHEDULED: frozenset({_S.SCHEDULED, _S.RUNNING, _S.COMPACTED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.SCHEDULED, _S.RUNNING, _S.COMPACTED, _S.FAILED}),
    _S.COMPACTED: frozenset({_S.COMPACTED, _S.FAILED}),
    # A finished entry stays finished: a worker's late heartbeat may store an older copy.
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedState:
    """The new local state, and the entries to report.

    Args:
        compactions: the new local state.
        cancelled: entries that an admin has set to Failed, as stored.
        failed: entries that their worker has set to Failed, as stored; they name the worker.
        ignored: new entries with a status that only a coordinator may add: Scheduled or Running.
    """

    compactions: Compactions
    cancelled: tuple[Compaction, ...] = ()
    failed: tuple[Compaction, ...] = ()
    ignored: tuple[Compaction, ...] = ()


def merge_remote(local: Compactions, remote: Compactions, reclaimed: Iterable[Compaction] = ()) -> MergedState:
    """Merge the stored version into the local one; entries that only one of them has are kept.

    Args:
        reclaimed: entries that this coordinator reclaims in a write that is not stored yet, as they were before.  A
            stored copy that has not changed since is ignored: other processes' writes repeat it.
    """
    taken_back = {entry.id: entry for entry in reclaimed}
    adopted: list[Compaction] = []
    ignored: list[Compaction] = []
    for entry in remote.entries:
        known = local.get(entry.id)
        if entry == taken_back.get(entry.id):
            continue
        if known is None:
            (adopted if entry.status in _ACCEPTED_NEW else ignored).append(entry)
        elif entry.status in _ADOPTED[known.status]:
            adopted.append(entry)
    ended = [entry for entry in adopted if entry.status is _S.FAILED]
    return MergedState(
        compactions=with_entries(local, adopted),
        cancelled=tuple(entry for entry in ended if entry.worker is None),
        failed=tuple(entry for entry in ended if entry.worker is not None),
        ignored=tuple(ignored),
    )
