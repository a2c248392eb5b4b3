"""What a checkpoint costs: the SSTs that nothing else needs."""

from dataclasses import dataclass
from typing import Self

from shale.types import Checkpoint, Manifest, Sst


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAlone:
    """SSTs of the database itself that could be collected if this checkpoint were not there."""

    checkpoint: Checkpoint
    ssts: tuple[Sst, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, kept: Manifest) -> Self:
        """Everything that the manifest of the checkpoint names, but for what it borrows from other databases."""
        borrowed = {sst_id for external in kept.external_dbs for sst_id in external.sst_ids}
        own = sorted((sst_id, sst) for sst_id, sst in kept.ssts().items() if sst_id not in borrowed)
        return cls(checkpoint=checkpoint, ssts=tuple(sst for _, sst in own))

    def without(self, other: Manifest) -> Self:
        """The same without what another manifest that stays names too."""
        needed = {view.sst.id for view in other.views()}
        return type(self)(checkpoint=self.checkpoint, ssts=tuple(sst for sst in self.ssts if sst.id not in needed))

    @property
    def size_bytes(self) -> int:
        """How much that is."""
        return sum(sst.estimated_size_bytes for sst in self.ssts)
