"""``shale.configure``: what all databases of a process share."""

from shale.engine.settings_values import Size, parse_size
from shale.sst.process_cache import process_budget


def configure(*, cache_bytes: Size | None = None) -> None:
    """Set what all databases of this process share; what is not given stays as it is.

    Args:
        cache_bytes: the most that blocks, indexes and filters of all databases take together, 256 MiB at first.  A
            database that is opened with ``block_cache_bytes`` or ``cache`` has its own and does not count.  May be
            changed at any time: caches shrink with their next read at the latest.

    Raises:
        InvalidRequestError: not a size.
    """
    if cache_bytes is not None:
        process_budget().resize(parse_size(cache_bytes, name="cache_bytes"))
