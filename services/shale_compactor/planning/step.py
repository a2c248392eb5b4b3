"""The result of a planning step of the coordinator."""

from dataclasses import replace

from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction, Compactions, CompactionSpec, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An entry that became Failed, and the rule that it broke."""

    entry: Compaction
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedProposal:
    """A proposal of the scheduler that breaks a rule.  It never becomes an entry."""

    spec: CompactionSpec
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStep:
    """The state after a step, and the entries that it changed.

    Args:
        manifest: the same object as before if it did not change.
        compactions: finished entries are kept; the write drops them (docs/reference/protocol.md 6.3).
        reclaimed: entries as they were before, with the silent worker.
        committed: entries as they were before they became Completed.
        rejected: entries as they were before they became Failed.
        proposed: new entries of the scheduler's proposals, Scheduled or Completed.
        scheduled: entries that became Scheduled, submitted or proposed.
        refused: proposals of the scheduler that were dropped.
    """

    manifest: Manifest
    compactions: Compactions
    reclaimed: tuple[Compaction, ...] = ()
    committed: tuple[Compaction, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    proposed: tuple[Compaction, ...] = ()
    scheduled: tuple[Compaction, ...] = ()
    refused: tuple[RefusedProposal, ...] = ()

    def then(self, later: "PlanningStep") -> "PlanningStep":
        """Combine two steps: the later state, and the changes of both."""
        return replace(
            later,
            reclaimed=(*self.reclaimed, *later.reclaimed),
            committed=(*self.committed, *later.committed),
            rejected=(*self.rejected, *later.rejected),
            proposed=(*self.proposed, *later.proposed),
            scheduled=(*self.scheduled, *later.scheduled),
            refused=(*self.refused, *later.refused),
        )
