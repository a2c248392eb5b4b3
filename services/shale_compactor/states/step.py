"""What one planning step of the coordinator made of its state, and whom it concerns."""

from dataclasses import dataclass, replace

from shale.types import Compaction, Compactions, CompactionSpec, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An entry that became Failed, and the rule that it broke."""

    entry: Compaction
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A proposal of our own policy that breaks a rule.  It never becomes an entry."""

    spec: CompactionSpec
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """State after a step, and what happened to whom.

    Args:
        manifest: the very same object as before if nothing in it changed.
        compactions: finished entries stay; they are forgotten when they are stored (docs/protocol.md 6.3).
        reclaimed: entries as they were, with the worker that fell silent.
        committed: entries as they were before they became Completed.
        rejected: entries as they were before they became Failed.
        proposed: entries as they are now: ours, Scheduled or Completed.
        scheduled: entries as they are now, whoever submitted them.
        refused: proposals of our own that were dropped.
    """

    manifest: Manifest
    compactions: Compactions
    reclaimed: tuple[Compaction, ...] = ()
    committed: tuple[Compaction, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    proposed: tuple[Compaction, ...] = ()
    scheduled: tuple[Compaction, ...] = ()
    refused: tuple[Refused, ...] = ()

    def then(self, later: "Step") -> "Step":
        """Both steps as one: the later state, and all that happened."""
        return replace(
            later,
            reclaimed=(*self.reclaimed, *later.reclaimed),
            committed=(*self.committed, *later.committed),
            rejected=(*self.rejected, *later.rejected),
            proposed=(*self.proposed, *later.proposed),
            scheduled=(*self.scheduled, *later.scheduled),
            refused=(*self.refused, *later.refused),
        )
