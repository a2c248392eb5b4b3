"""Cancel a compaction: the only change of a coordinator's entry that an admin may make (docs/reference/protocol.md
6.13).

A Submitted, Scheduled or Running entry becomes Failed, without worker and progress.  Shale's coordinator adopts that,
and its worker stops at the next heartbeat; GC deletes its outputs.  A Compacted entry cannot be cancelled: its result
may already be committed.
"""

from shale.compaction.entries import finished, with_entry
from shale.errors import InvalidRequestError, NotFoundError
from shale.types import Compactions, CompactionStatus, Ulid

CANCELLABLE = frozenset({CompactionStatus.SUBMITTED, CompactionStatus.SCHEDULED, CompactionStatus.RUNNING})


class TooLateToCancel(InvalidRequestError):
    """The compaction already has its result, or has ended."""


def with_cancelled(compactions: Compactions, compaction_id: Ulid) -> Compactions:
    """Return the compactions with one entry cancelled.

    Raises:
        NotFoundError: there is no such entry.
        TooLateToCancel: it is Compacted, Completed or Failed.
    """
    entry = compactions.get(compaction_id)
    if entry is None:
        raise NotFoundError(f"compaction {compaction_id} is not in the compactions file")
    if entry.status not in CANCELLABLE:
        raise TooLateToCancel(f"compaction {compaction_id} is {entry.status.name.lower()}: too late to cancel it")
    return with_entry(compactions, finished(entry, CompactionStatus.FAILED))
