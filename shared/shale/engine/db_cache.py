"""``Db.cache`` and ``DbReader.cache``: warm and evict key ranges."""

from collections.abc import Awaitable, Callable, Collection

from shale.core.bytes_like import BytesLike
from shale.engine.read.read_point import ReadPoint
from shale.engine.scan.plan import scan_range
from shale.engine.warm import CacheTarget, WarmResult, evict_views, parse_targets, views_of, warm_views
from shale.errors import SstMissing
from shale.types import KeyRange


class DbCache:
    """Warms and evicts the cache of one handle.

    Args:
        newest: returns the newest read point; raises if the handle is closed or has failed.
    """

    __slots__ = ("_newest",)

    def __init__(self, newest: Callable[[], Awaitable[ReadPoint]]) -> None:
        self._newest = newest

    async def warm(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> WarmResult:
        """Load SSTs into the cache, so that reads of these keys need no request.

        Beyond ``block_cache_bytes``, later blocks evict earlier ones from memory; a disk cache keeps them.

        Args:
            prefix, start, stop: the keys, as for ``scan``.
            targets: any of ``filters``, ``index`` and ``stats``, which come together, and ``data``; all by default.

        Returns:
            What was loaded or found in the cache.
        """
        wanted = parse_targets(targets)
        return await self._warm(scan_range(prefix=prefix, start=start, stop=stop), None, wanted)

    async def warm_sst(
        self,
        sst_id: str,
        *,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> WarmResult:
        """Warm one SST; does nothing if the manifest does not name it."""
        return await self._warm(scan_range(start=start, stop=stop), str(sst_id), parse_targets(targets))

    async def evict(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        disk: bool = False,
    ) -> None:
        """Evict these keys from the cache.

        Args:
            prefix, start, stop: the keys, as for ``scan``.
            disk: also evict whole SSTs from the disk cache.
        """
        view = (await self._newest()).view
        evict_views(view.reader, views_of(view, scan_range(prefix=prefix, start=start, stop=stop)), disk=disk)

    async def evict_sst(self, sst_id: str, *, disk: bool = False) -> None:
        """Evict one SST; does nothing if it is not cached."""
        view = (await self._newest()).view
        for slot in view.reader.slots():
            if str(slot.sst.id) == str(sst_id):
                view.reader.evict(slot, disk=disk)

    async def _warm(self, key_range: KeyRange, sst_id: str | None, targets: frozenset[CacheTarget]) -> WarmResult:
        while True:
            point = await self._newest()
            try:
                return await warm_views(point.view.reader, views_of(point.view, key_range, sst_id), targets)
            except SstMissing as gone:
                if point.view_provider is None:
                    raise
                await point.view_provider.on_sst_missing(gone)


async def adopt_cache(mine: DbCache, theirs: DbCache) -> int:
    """Cache in one handle what another handle of the same database and thread has in memory; make no request.

    Returns:
        The number of SSTs.
    """
    reader, other = (await mine._newest()).view.reader, (await theirs._newest()).view.reader
    adopted = 0
    for cached in other.slots():
        if cached.meta is not None:
            slot = reader.slot(cached.sst)
            reader.cache.put_meta(slot, cached.meta)
            reader.cache.put_blocks(slot, list(cached.images), list(cached.images.values()))
            adopted += 1
    return adopted
