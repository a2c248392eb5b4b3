"""Blocking handles with a cache."""

from collections.abc import Collection
from typing import TypeVar

from shale.engine.batch import BytesLike
from shale.engine.warm import CacheTarget, Warmed
from shale.engine.warmable import Warmable
from shale.sync.reads import BlockingReads

W = TypeVar("W", bound=Warmable)


class BlockingWarmable(BlockingReads[W]):
    """The methods of ``shale.engine.warmable.Warmable``, blocking."""

    def warm(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> Warmed:
        """Bring SSTs into the cache, so that reads of these keys find them there; see ``shale.Db.warm``."""
        return self._background.call(self._inner.warm(prefix=prefix, start=start, stop=stop, targets=targets))

    def warm_sst(
        self,
        sst_id: str,
        *,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> Warmed:
        """``warm`` of one SST of the manifest; nothing happens if the manifest does not name it."""
        return self._background.call(self._inner.warm_sst(sst_id, start=start, stop=stop, targets=targets))

    def evict(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        disk: bool = False,
    ) -> None:
        """Let go of what the cache holds for these keys; see ``shale.Db.evict``."""
        self._background.call(self._inner.evict(prefix=prefix, start=start, stop=stop, disk=disk))

    def evict_sst(self, sst_id: str, *, disk: bool = False) -> None:
        """``evict`` of one SST; nothing happens if nothing of it is held."""
        self._background.call(self._inner.evict_sst(sst_id, disk=disk))
