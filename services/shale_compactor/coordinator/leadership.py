"""Acquire and release the leadership of a coordinator.

Source: docs/reference/protocol.md 6.4, 14.1.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from shale.errors import FencedError, ObjectVersionExists, ProtocolPanic
from shale.protocol.compactions_store import COORDINATOR, CompactionsStore
from shale.protocol.manifest_store import COMPACTOR, FenceableManifest, ManifestStore
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.types import Epoch, Manifest
from shale.types.writer_sign import EmbeddedCompactor, embedded_compactor, with_embedded_compactor
from shale_compactor.coordinator.state import CoordinatorState
from shale_compactor.coordinator.state_writer import store_once
from shale_compactor.planning.merge_state import MergedState
from shale_compactor.planning.startup import plan_startup
from shale_compactor.planning.step import PlanningStep


async def acquire_leadership(
    manifests: ManifestStore,
    compactions: CompactionsStore,
    on_merge: Callable[[MergedState], None],
    *,
    writer_epoch: Epoch | None = None,
    worker_id: str = "",
) -> tuple[CoordinatorState, PlanningStep]:
    """Claim the epoch, first in the manifest, then in the compactions, and validate the jobs of the last coordinator.

    Args:
        writer_epoch: of the writer in whose process it runs; that writer's sign of life then tells the epoch.
        worker_id: of the worker of this process.

    Raises:
        LatestRecordMissing: there is no database yet.
        FencedError: another coordinator started at the same time and claimed a higher epoch, or the writer of this
            process was replaced.
    """
    signed: EmbeddedCompactor | None = None

    def sign(value: Manifest, epoch: Epoch, _version: int) -> Manifest:
        nonlocal signed
        if writer_epoch is None:
            return value
        if value.writer_epoch != writer_epoch:
            raise FencedError(f"writer epoch {writer_epoch}, of this process, was superseded by {value.writer_epoch}")
        signed = (embedded_compactor(value) or EmbeddedCompactor(epoch, "")).replaced_by(epoch, worker_id)
        return with_embedded_compactor(value, signed)

    manifest = await Fenceable.claim(await manifests.load(), COMPACTOR, edit=sign)
    stored = await compactions.load_or_create()
    claimed = await Fenceable.claim_epoch(stored, COORDINATOR, manifest.epoch)
    view = CoordinatorState(manifest, claimed, claimed.value, on_merge)
    step = await _write_startup_plan(view, () if signed is None else signed.replaced_workers)
    epochs = (view.manifest.value.compactor_epoch, view.compactions.value.compactor_epoch)
    if epochs != (manifest.epoch, manifest.epoch):
        raise ProtocolPanic("the epochs of manifest and compactions differ", ours=manifest.epoch, stored=epochs)
    return view, step


async def _write_startup_plan(view: CoordinatorState, gone_workers: Collection[str]) -> PlanningStep:
    """Write the startup plan, replanned after each conflict (docs/reference/protocol.md 6.4, step 5)."""
    conflicts = 0
    while True:
        step = plan_startup(view.manifest.value, view.compactions.value, gone_workers)
        view.local = step.compactions
        try:
            await store_once(view)
        except ObjectVersionExists:
            conflicts += 1
            await view.compactions.recover(conflicts)
        else:
            return step


async def release_leadership(manifest: FenceableManifest) -> None:
    """Give up the epoch, so that the next coordinator can start at once.

    The next epoch is claimed in the manifest only.  No coordinator can commit from then on, as after a start that died
    between its two claims: the manifest's epoch is ahead of the compactions'.
    """

    def next_epoch(current: Versioned[Manifest]) -> Manifest:
        return replace(current.value, compactor_epoch=Epoch(manifest.epoch + 1))

    try:
        await manifest.apply(next_epoch)
    except FencedError:
        return  # another coordinator was faster, or this write succeeded and its response was lost
