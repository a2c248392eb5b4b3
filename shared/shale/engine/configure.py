"""``shale.configure``: settings that all databases of a process share."""

from shale.core.settings_values import Size, parse_size
from shale.engine.cache_settings import DiskCacheSetting, parse_disk_cache
from shale.engine.embedded_defaults import EMBEDDED_DEFAULTS
from shale.sst.process_cache import PROCESS_CACHE


def configure(
    *,
    cache_bytes: Size | None = None,
    disk_cache: DiskCacheSetting = None,
    compactor: bool | None = None,
    gc: bool | None = None,
) -> None:
    """Change the shared settings; arguments that are not given leave theirs unchanged.

    Args:
        cache_bytes: bound of the cached blocks, indexes and filters of all databases together; 256 MiB by default.
            Databases opened with ``block_cache_bytes`` or ``cache`` do not count.  A lower bound takes effect with the
            next read of each database at the latest.
        disk_cache: a directory, or a mapping with ``directory``, ``max_bytes`` and ``part_bytes``; the default of
            databases that are opened later.
        compactor: whether writers that are opened later run a compactor beside them; on by default.
        gc: the same for a collector.

    Raises:
        InvalidRequestError: not a size, not a disk cache, or not a bool.
    """
    size_bytes = None if cache_bytes is None else parse_size(cache_bytes, name="cache_bytes")
    options = parse_disk_cache(disk_cache)
    if size_bytes is not None:
        PROCESS_CACHE.budget.resize(size_bytes)
    if options is not None:
        PROCESS_CACHE.disk_default = options
    EMBEDDED_DEFAULTS.change(compactor=compactor, gc=gc)
