"""Cancelling a compaction: the one edit of a coordinator's entry that an admin may make (docs/protocol.md 6.13).

A Submitted, Scheduled or Running entry becomes Failed, without worker and progress.  Our coordinator adopts that, and
our worker stops at its next heartbeat; what it has written is garbage for the collector.  A result that is Compacted
is as good as committed, so it is too late then.
"""

from shale.compaction.entries import finished, with_entry
from shale.errors import InvalidRequestError, NotFoundError
from shale.types import Compactions, CompactionStatus, Ulid

CANCELLABLE = frozenset({CompactionStatus.SUBMITTED, CompactionStatus.SCHEDULED, CompactionStatus.RUNNING})


class TooLateToCancel(InvalidRequestError):
    """The compaction has its result already, or has ended."""


def with_cancelled(compactions: Compactions, compaction_id: Ulid) -> Compactions:
    """The compactions with one entry cancelled.

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
