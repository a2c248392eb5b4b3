"""What one planning step of the coordinator made of its state, and whom it concerns."""

from dataclasses import dataclass

from shale.types import Compaction, Compactions, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An entry that became Failed, and the rule that it broke."""

    entry: Compaction
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """State after a step, and what happened to whom.  ``committed`` lists entries as they were before."""

    manifest: Manifest
    compactions: Compactions
    committed: tuple[Compaction, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    scheduled: tuple[Compaction, ...] = ()
