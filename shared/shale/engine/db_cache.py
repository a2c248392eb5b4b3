"""The cache of an open database: what can be read can be brought into memory before, and let go."""

from collections.abc import Awaitable, Callable, Collection

from shale.engine.batch import BytesLike
from shale.engine.read_point import ReadPoint
from shale.engine.scan_range import scan_range
from shale.engine.warm import CacheTarget, Warmed, checked_targets, evict_views, views_of, warm_views
from shale.errors import SstMissing
from shale.types import KeyRange


class DbCache:
    """What ``Db.cache`` and ``DbReader.cache`` are.

    Args:
        newest: the newest state; raises if the handle is closed or has failed, and so does every call.
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
    ) -> Warmed:
        """Bring SSTs into the cache, so that reads of these keys find them there.

        What does not fit into ``block_cache_bytes`` pushes out what came before it; with a disk cache it stays there.

        Args:
            prefix, start, stop: which keys, as for ``scan``.
            targets: any of ``filters``, ``index`` and ``stats``, which come together, and ``data``; all by default.

        Returns:
            how much is warm now.
        """
        wanted = checked_targets(targets)
        return await self._warm(scan_range(prefix=prefix, start=start, stop=stop), None, wanted)

    async def warm_sst(
        self,
        sst_id: str,
        *,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        targets: Collection[CacheTarget | str] | None = None,
    ) -> Warmed:
        """``warm`` of one SST of the manifest; nothing happens if the manifest does not name it."""
        return await self._warm(scan_range(start=start, stop=stop), str(sst_id), checked_targets(targets))

    async def evict(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        disk: bool = False,
    ) -> None:
        """Let go of what the cache holds for these keys.

        Args:
            prefix, start, stop: which keys, as for ``scan``.
            disk: also from the disk cache, as far as whole SSTs are meant.
        """
        view = (await self._newest()).view
        evict_views(view.reader, views_of(view, scan_range(prefix=prefix, start=start, stop=stop)), disk=disk)

    async def evict_sst(self, sst_id: str, *, disk: bool = False) -> None:
        """``evict`` of one SST; nothing happens if nothing of it is held."""
        view = (await self._newest()).view
        for slot in view.reader.slots():
            if str(slot.sst.id) == str(sst_id):
                view.reader.evict(slot, disk=disk)

    async def _warm(self, key_range: KeyRange, sst_id: str | None, targets: frozenset[CacheTarget]) -> Warmed:
        while True:
            point = await self._newest()
            try:
                return await warm_views(point.view.reader, views_of(point.view, key_range, sst_id), targets)
            except SstMissing as gone:
                if point.keeper is None:
                    raise
                await point.keeper.renew(gone)
