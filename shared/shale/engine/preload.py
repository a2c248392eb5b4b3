"""Loads whole SSTs into the disk cache when a database is opened.

Source: SlateDB ``preload_disk_cache_on_startup``.
"""

from collections.abc import Iterator
from functools import partial

from shale.errors import ShaleError, SstMissing
from shale.sst.disk_cache_options import DiskCacheOptions, Preload
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest, Sst

log = get_logger("disk_cache")


async def preload_disk_cache(
    store: ObjectStore, reader: SstReader, manifest: Manifest, options: DiskCacheOptions
) -> None:
    """Load the SSTs that the options name, the newest first, as far as the cache can hold them together.

    An error ends the preload and is logged; reads fetch the rest.
    """
    assert options.preload is not None
    assert reader.sections.parts is not None
    left = options.max_bytes
    try:
        for sst in _ssts(manifest, options.preload):
            left -= sst.info.sections_end
            if left < 0:
                return
            key = reader.slot(sst).path
            await reader.sections.parts.preload(key, sst.info.sections_end, partial(_fetch, store, sst, key))
    except ShaleError as error:
        log.warning(Event.DISK_CACHE_FAILED, directory=options.directory, error=error)


async def _fetch(store: ObjectStore, sst: Sst, key: str, start: int, end: int) -> memoryview:
    data = await store.get_range(key, start, end)
    if data is None:
        raise SstMissing(str(sst.id), key)
    return data


def _ssts(manifest: Manifest, preload: Preload) -> Iterator[Sst]:
    """Yield each SST once: L0s of all trees, then sorted runs."""
    trees = [tree for _, tree in manifest.trees()]
    views = [view for tree in trees for view in tree.l0]
    if preload is Preload.ALL:
        views += [view for tree in trees for run in tree.compacted for view in run.ssts]
    yield from {view.sst.id: view.sst for view in views}.values()
