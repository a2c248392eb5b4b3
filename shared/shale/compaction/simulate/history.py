"""The load that a database had, as its retained manifests tell it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shale.compaction.simulate.load import RecordedFlush, recorded_flushes
from shale.types import Manifest, Sst, Ulid


@dataclass(frozen=True, slots=True)
class History:
    """Flushes in order of time, the first at 0, and the bytes of the runs that were there before them."""

    flushes: tuple[RecordedFlush, ...]
    initial_bytes: int


def history_of(manifests: Sequence[Manifest]) -> History:
    """Read the flushes out of versions of the manifest, oldest first.

    A flush writes a version of its own, so that between the oldest and the newest version none is missing.  The ULID
    of an L0 is the time of its flush.
    """
    flushed: dict[Ulid, Sst] = {sst.id: sst for sst in _l0_ssts(manifests)}
    flushes = [RecordedFlush(sst.id.ms / 1000, sst.estimated_size_bytes) for sst in flushed.values()]
    first = manifests[0] if manifests else Manifest()
    runs = (run.estimated_size_bytes for _, tree in first.trees() for run in tree.compacted)
    return History(recorded_flushes(flushes), sum(runs))


def _l0_ssts(manifests: Iterable[Manifest]) -> Iterable[Sst]:
    return (view.sst for manifest in manifests for _, tree in manifest.trees() for view in tree.l0)
