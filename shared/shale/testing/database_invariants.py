"""The invariants of a whole database, checked after every mutation: docs/reference/protocol.md, Appendix B.

1 to 3, 5 to 7, 9, 12, 14 and 15 are here.  4 follows from 15, because a step that drops a commit of another process
changes a field of that process; 8, 10 and 11 need the rows and belong to the tests that know what was written.
"""

from functools import partial
from typing import TYPE_CHECKING

from shale.format.names import parse_sst_key, parse_wal_key, sst_key, wal_key
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.port import Create
from shale.testing.compaction_invariants import (
    check_compactions_step,
    check_finished_in_manifest,
    check_inputs_are_pinned,
)
from shale.testing.mutation_log import Mutation
from shale.testing.ownership import check_step
from shale.testing.sequenced_invariants import SequencedInvariants
from shale.testing.sim_process import START_MS
from shale.types import Compactions, Manifest, Ulid

if TYPE_CHECKING:
    from shale.testing.simulation import Simulation


class DatabaseInvariants:
    """Checks the database at ``root``.

    Attributes:
        manifests, compactions: the rules of the two namespaces; ``.versions`` and ``.latest`` show what was written.
    """

    def __init__(
        self,
        root: str,
        *,
        boundaries: bool = True,
        boundary_may_go: bool = False,
        union: bool = False,
        pins: bool = True,
    ) -> None:
        """``boundaries`` and ``boundary_may_go``: see ``SequencedInvariants``.

        Args:
            union: L0s may be listed twice.
            pins: a commit pins its inputs, which a coordinator cannot guarantee if its clock is hours late.
        """
        self.root = root
        self._pins = pins
        self.manifests: SequencedInvariants[Manifest] = SequencedInvariants(
            ManifestStore.namespace_of(root),
            check_step=partial(check_step, union=union),
            boundaries=boundaries,
            boundary_may_go=boundary_may_go,
        )
        self.compactions: SequencedInvariants[Compactions] = SequencedInvariants(
            CompactionsStore.namespace_of(root),
            check_step=check_compactions_step,
            boundaries=boundaries,
            boundary_may_go=boundary_may_go,
        )

    def after(self, mutation: Mutation, sim: "Simulation") -> None:
        """See ``Invariants``."""
        if not mutation.key.startswith(f"{self.root}/"):
            return
        newest_before, jobs_before = self.manifests.latest_id, self.compactions.latest_id
        self.manifests.after(mutation, sim)
        self.compactions.after(mutation, sim)
        if self.manifests.latest_id > newest_before:
            self._check_ssts_exist(self.manifests.latest, sim, mutation)
            self._check_pins(mutation)
        elif self.compactions.latest_id > jobs_before:
            self._check_finished(mutation)
        elif (wal_id := parse_wal_key(self.root, mutation.key)) is not None:
            self._check_wal(wal_id, mutation, sim)
        elif mutation.op == "delete" and (sst_id := parse_sst_key(self.root, mutation.key)) is not None:
            self._check_unused(sst_id, mutation, sim)

    def _check_ssts_exist(self, manifest: Manifest, sim: "Simulation", mutation: Mutation) -> None:
        external = {sst_id: entry.path for entry in manifest.external_dbs for sst_id in entry.sst_ids}
        for sst_id in manifest.ssts():
            key = sst_key(external.get(sst_id, self.root), sst_id)
            assert key in sim.stored, f"{mutation} refers to {key}, which does not exist"

    def _check_pins(self, mutation: Mutation) -> None:
        versions, newest = self.manifests.versions, self.manifests.latest_id
        if self._pins and newest - 1 in versions:
            check_inputs_are_pinned(versions[newest - 1], versions[newest], versions, mutation)

    def _check_finished(self, mutation: Mutation) -> None:
        base = self.compactions.versions.get(self.compactions.latest_id - 1)
        if base is not None and self.manifests.latest_id:
            check_finished_in_manifest(base, self.compactions.latest, self.manifests.latest, mutation)

    def _check_unused(self, sst_id: Ulid, mutation: Mutation, sim: "Simulation") -> None:
        for manifest_id, manifest in self._protected(sim):
            assert sst_id not in manifest.ssts(), f"{mutation}: manifest {manifest_id} needs it"

    def _check_wal(self, wal_id: int, mutation: Mutation, sim: "Simulation") -> None:
        if mutation.op == "delete":
            assert sim.history.mutations, "a WAL file was deleted that was not written"
            self._check_wal_deletion(wal_id, mutation, sim)
            return
        assert isinstance(mutation.mode, Create), f"{mutation}: a WAL file must be created, never overwritten"
        if not self.manifests.latest_id:
            return
        manifest = self.manifests.latest
        before = range(manifest.replay_after_wal_id + 1, wal_id)
        if not manifest.has_parallel_wal:
            before = before[-1:]  # the ones before were checked when they were written
        missing = [each for each in before if wal_key(self.root, each) not in sim.stored]
        assert len(missing) < manifest.max_parallel_writes, f"{mutation}: a gap in front of it: {missing}"

    def _check_wal_deletion(self, wal_id: int, mutation: Mutation, sim: "Simulation") -> None:
        latest_id = self.manifests.latest_id
        for manifest_id, manifest in self._protected(sim):
            if manifest_id == latest_id:
                needed = wal_id >= manifest.replay_after_wal_id
            else:
                needed = manifest.replay_after_wal_id < wal_id < manifest.next_wal_sst_id
            assert not needed, f"{mutation}: manifest {manifest_id} needs it"

    def _protected(self, sim: "Simulation") -> list[tuple[int, Manifest]]:
        """The latest manifest and those of its live checkpoints."""
        if not self.manifests.latest_id:
            return []
        now_ms = _now_ms(sim)
        ids = {self.manifests.latest_id}
        ids.update(entry.manifest_id for entry in self.manifests.latest.checkpoints if not entry.is_expired(now_ms))
        return [(manifest_id, self.manifests.versions[manifest_id]) for manifest_id in sorted(ids)]


def _now_ms(sim: "Simulation") -> int:
    return START_MS + int(sim.loop.time() * 1000)
