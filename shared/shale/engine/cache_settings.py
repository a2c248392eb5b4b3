"""The option ``disk_cache`` of ``open`` and ``configure``: a directory, or a mapping with its limits."""

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from shale.core.settings_values import parse_size
from shale.errors import InvalidRequestError
from shale.sst.disk_cache_options import DEFAULT_MAX_BYTES, DEFAULT_PART_BYTES, DiskCacheOptions

DiskCacheSetting: TypeAlias = DiskCacheOptions | Mapping[str, Any] | str | os.PathLike[str] | None


def parse_disk_cache(value: DiskCacheSetting) -> DiskCacheOptions | None:
    """Parse the option; ``None``: no disk cache.

    Raises:
        InvalidRequestError: an unknown name, or sizes that contradict each other.
    """
    match value:
        case None | DiskCacheOptions():
            return value
        case str() | os.PathLike():
            return DiskCacheOptions(os.fspath(value))
        case Mapping():
            return _from_mapping(value)
    raise InvalidRequestError(f"disk_cache: {value!r} is neither a directory nor a mapping")


def _from_mapping(value: Mapping[str, Any]) -> DiskCacheOptions:
    unknown = sorted(set(value) - {"directory", "max_bytes", "part_bytes"})
    if unknown:
        raise InvalidRequestError(f"disk_cache: no such option: {', '.join(map(str, unknown))}")
    return DiskCacheOptions(
        os.fspath(value.get("directory", "")),
        max_bytes=parse_size(value.get("max_bytes", DEFAULT_MAX_BYTES), name="disk_cache.max_bytes"),
        part_bytes=parse_size(value.get("part_bytes", DEFAULT_PART_BYTES), name="disk_cache.part_bytes"),
    )
