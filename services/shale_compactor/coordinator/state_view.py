"""What a coordinator knows of its two files, and the order in which it looks at them (docs/protocol.md 6.1).

Compactions are read before the manifest, always: what the compactions call finished is then in the manifest.
"""

from collections.abc import Callable, Iterable

from shale.errors import InvalidDbState
from shale.protocol.compactions_store import FenceableCompactions
from shale.protocol.manifest_store import FenceableManifest
from shale.types import Compaction, Compactions
from shale_compactor.states.merge_state import MergedState, merge_remote


class StateView:
    """Both files under one epoch, and all jobs as this process knows them.

    ``local`` holds more than the stored compactions: entries that finished here stay until a write that knows about
    it has succeeded, so that an older copy cannot bring them back.
    """

    def __init__(
        self,
        manifest: FenceableManifest,
        compactions: FenceableCompactions,
        local: Compactions,
        on_merge: Callable[[MergedState], None],
    ) -> None:
        """``on_merge`` hears of everything that others have stored."""
        self.manifest = manifest
        self.compactions = compactions
        self.local = local
        self._on_merge = on_merge

    @property
    def has_active(self) -> bool:
        """Whether any job is not finished."""
        return any(entry.is_active for entry in self.local.entries)

    def merge(self, reclaimed: Iterable[Compaction] = ()) -> None:
        """Adopt what workers and admins have stored; see ``merge_remote``."""
        merged = merge_remote(self.local, self.compactions.value, reclaimed)
        self._on_merge(merged)
        self.local = merged.compactions


async def refresh_view(view: StateView, wanted: Callable[[Compactions], bool] | None = None) -> bool:
    """Look at the compactions, then at the manifest.

    Args:
        wanted: whether what the compactions hold is worth a look at the manifest.

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
