"""``shale.configure``: what all databases of a process share."""

from shale.engine.disk_cache_setting import DiskCacheSetting, parse_disk_cache
from shale.engine.settings_values import Size, parse_size
from shale.sst.process_cache import PROCESS_CACHE


def configure(*, cache_bytes: Size | None = None, disk_cache: DiskCacheSetting = None) -> None:
    """Set what all databases of this process share; what is not given stays as it is.

    Args:
        cache_bytes: the most that blocks, indexes and filters of all databases take together, 256 MiB at first.  A
            database that is opened with ``block_cache_bytes`` or ``cache`` has its own and does not count.  May be
            changed at any time: caches shrink with their next read at the latest.
        disk_cache: a directory, or a mapping with ``directory``, ``max_bytes`` and ``part_bytes``, for databases that
            are opened from now on without one of their own.

    Raises:
        InvalidRequestError: not a size, or not a disk cache.
    """
    size_bytes = None if cache_bytes is None else parse_size(cache_bytes, name="cache_bytes")
    options = parse_disk_cache(disk_cache)
    if size_bytes is not None:
        PROCESS_CACHE.budget.resize(size_bytes)
    if options is not None:
        PROCESS_CACHE.disk_default = options
