"""The cache of an open database, whose calls block."""

from collections.abc import Collection

from shale.engine import db_cache
from shale.engine.batch import BytesLike
from shale.engine.warm import CacheTarget, Warmed
from shale.sync.background import Background


class DbCache:
    """The methods of ``shale.engine.db_cache.DbCache``, blocking."""

    def __init__(self, inner: db_cache.DbCache, background: Background) -> None:
        self._inner = inner
        self._background = background

    def warm(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> Warmed:
        """Bring SSTs into the cache, so that reads of these keys find them there."""
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
        """Let go of what the cache holds for these keys."""
        self._background.call(self._inner.evict(prefix=prefix, start=start, stop=stop, disk=disk))

    def evict_sst(self, sst_id: str, *, disk: bool = False) -> None:
        """``evict`` of one SST; nothing happens if nothing of it is held."""
        self._background.call(self._inner.evict_sst(sst_id, disk=disk))
