"""What a coordinator adopts from the stored compactions into its own copy (docs/protocol.md 6.6, step 1).

The coordinator decides what is scheduled and what is finished; workers move entries between Scheduled, Running and
Compacted; admins add Submitted ones.  So each side's news about the other's business is refused.  The exception is a
cancellation: an active entry that is stored as Failed becomes Failed here as well (docs/protocol.md 6.13).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from shale.compaction.entries import with_entries
from shale.types import Compaction, Compactions, CompactionStatus

_S = CompactionStatus
_ACCEPTED_NEW = frozenset({_S.SUBMITTED, _S.COMPACTED, _S.COMPLETED, _S.FAILED})
_ADOPTED: dict[CompactionStatus, frozenset[CompactionStatus]] = {
    _S.SUBMITTED: frozenset({_S.COMPACTED, _S.FAILED}),
    # Scheduled as well: a worker may claim and give back between two of our looks, and what it finished stays.
    _S.SCHEDULED: frozenset({_S.SCHEDULED, _S.RUNNING, _S.COMPACTED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.SCHEDULED, _S.RUNNING, _S.COMPACTED, _S.FAILED}),
    _S.COMPACTED: frozenset({_S.COMPACTED, _S.FAILED}),
    # A finished entry stays finished: an older copy of it may come back with a worker's late heartbeat.
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedState:
    """The new local state, and what is worth a word.

    Args:
        cancelled: entries that became Failed without us, as they are stored.
        ignored: entries that nobody may add: Scheduled or Running, and unknown to the coordinator.
    """

    compactions: Compactions
    cancelled: tuple[Compaction, ...] = ()
    ignored: tuple[Compaction, ...] = ()


def merge_remote(local: Compactions, remote: Compactions, reclaimed: Iterable[Compaction] = ()) -> MergedState:
    """Merge the stored version into the local one; entries that only one side knows are kept.

    Args:
        reclaimed: entries as they were when they were taken back here, which is still to be stored.  One that is
            stored as it was is as silent as it was: others write all the time, and would bring it back every time.
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
    return MergedState(
        compactions=with_entries(local, adopted),
        cancelled=tuple(entry for entry in adopted if entry.status is _S.FAILED),
        ignored=tuple(ignored),
    )
