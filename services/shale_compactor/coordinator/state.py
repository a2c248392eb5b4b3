"""The coordinator's state of manifest and compactions, and the order of reading them (docs/reference/protocol.md 6.1).

The compactions are always read before the manifest: the manifest then has all results that they call finished.
"""

from collections.abc import Callable, Iterable

from shale.errors import InvalidDbState
from shale.protocol.compactions_store import FenceableCompactions
from shale.protocol.manifest_store import FenceableManifest
from shale.types import Compaction, Compactions
from shale_compactor.planning.merge_state import MergedState, merge_remote


class CoordinatorState:
    """Both files under one epoch, and the local state of all jobs.

    ``local`` may have more entries than the stored compactions: a finished entry stays until it has been written, so
    that an older stored copy cannot revive it.
    """

    def __init__(
        self,
        manifest: FenceableManifest,
        compactions: FenceableCompactions,
        local: Compactions,
        on_merge: Callable[[MergedState], None],
    ) -> None:
        """Create the state; ``on_merge`` is called with each merged version of the stored compactions."""
        self.manifest = manifest
        self.compactions = compactions
        self.local = local
        self._on_merge = on_merge

    @property
    def has_active(self) -> bool:
        """Whether any job is active."""
        return any(entry.is_active for entry in self.local.entries)

    def merge(self, reclaimed: Iterable[Compaction] = ()) -> None:
        """Merge the changes of workers and admins into the local state; see ``merge_remote``."""
        merged = merge_remote(self.local, self.compactions.value, reclaimed)
        self._on_merge(merged)
        self.local = merged.compactions


async def refresh_state(view: CoordinatorState, wanted: Callable[[Compactions], bool] | None = None) -> bool:
    """Refresh the compactions, then the manifest.

    Args:
        wanted: decides from the compactions whether to refresh the manifest; ``None``: always.

    Returns:
        Whether the manifest was refreshed.

    Raises:
        FencedError: another coordinator has taken over.
        InvalidDbState: the database is being destroyed.
    """
    await view.compactions.refresh()
    view.merge()
    if wanted is not None and not wanted(view.local):
        return False
    await view.manifest.refresh()
    if not view.manifest.value.initialized:
        raise InvalidDbState("the database is being destroyed")
    return True
