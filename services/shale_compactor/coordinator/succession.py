"""How one coordinator follows another: it takes the epoch, settles what was left, and resigns at the end.

Source: docs/protocol.md 6.4, 14.1.
"""

from collections.abc import Callable
from dataclasses import replace

from shale.errors import FencedError, ObjectVersionExists, ProtocolPanic
from shale.protocol.compactions_store import COORDINATOR, CompactionsStore
from shale.protocol.manifest_store import COMPACTOR, FenceableManifest, ManifestStore
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.types import Epoch, Manifest
from shale_compactor.coordinator.state_view import StateView
from shale_compactor.coordinator.writing import store_once
from shale_compactor.states.merge_state import MergedState
from shale_compactor.states.startup import plan_startup
from shale_compactor.states.step import Step


async def take_office(
    manifests: ManifestStore, compactions: CompactionsStore, on_merge: Callable[[MergedState], None]
) -> tuple[StateView, Step]:
    """Take the epoch, first in the manifest, then in the compactions, and settle what the last coordinator left.

    Raises:
        LatestRecordMissing: there is no database yet.
        FencedError: another coordinator started at the same time and is ahead.
    """
    manifest = await Fenceable.claim(await manifests.load(), COMPACTOR)
    stored = await compactions.load_or_create()
    claimed = await Fenceable.claim_epoch(stored, COORDINATOR, manifest.epoch)
    view = StateView(manifest, claimed, claimed.value, on_merge)
    step = await _settle(view)
    epochs = (view.manifest.value.compactor_epoch, view.compactions.value.compactor_epoch)
    if epochs != (manifest.epoch, manifest.epoch):
        raise ProtocolPanic("the epochs of manifest and compactions differ", ours=manifest.epoch, stored=epochs)
    return view, step


async def _settle(view: StateView) -> Step:
    """One write, planned again on every newer version (docs/protocol.md 6.4, step 5)."""
    conflicts = 0
    while True:
        step = plan_startup(view.manifest.value, view.compactions.value)
        view.local = step.compactions
        try:
            await store_once(view)
        except ObjectVersionExists:
            conflicts += 1
            await view.compactions.recover(conflicts)
        else:
            return step


async def resign(manifest: FenceableManifest) -> None:
    """Give the epoch up, so that a successor need not wait for signs of our life to grow old.

    The next epoch is taken in the manifest alone.  From then on nobody can commit, as after a start that died
    between its two claims: the epoch of the manifest is ahead of that of the compactions.
    """

    def next_epoch(current: Versioned[Manifest]) -> Manifest:
        return replace(current.value, compactor_epoch=Epoch(manifest.epoch + 1))

    try:
        await manifest.apply(next_epoch)
    except FencedError:
        return  # a successor was faster, or the answer to our own write got lost
