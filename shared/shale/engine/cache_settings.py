"""The option ``disk_cache`` of ``open`` and ``configure``: a directory, or a mapping with its limits."""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from shale.core.settings_values import parse_size
from shale.core.suggestions import invalid_choice, suggest
from shale.errors import InvalidRequestError
from shale.sst.disk_cache_options import (
    DEFAULT_MAX_BYTES,
    DEFAULT_OPEN_FILES,
    DEFAULT_PART_BYTES,
    DiskCacheOptions,
    Preload,
)

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
    known = [each.name for each in fields(DiskCacheOptions)]
    unknown = sorted(map(str, set(value) - {*known}))
    if unknown:
        hint = suggest(unknown[0], known)
        raise InvalidRequestError(f"disk_cache: no such option: {', '.join(unknown)}{hint}")
    return DiskCacheOptions(
        os.fspath(value.get("directory", "")),
        max_bytes=parse_size(value.get("max_bytes", DEFAULT_MAX_BYTES), name="disk_cache.max_bytes"),
        part_bytes=parse_size(value.get("part_bytes", DEFAULT_PART_BYTES), name="disk_cache.part_bytes"),
        cache_on_flush=bool(value.get("cache_on_flush", False)),
        cache_on_compaction=bool(value.get("cache_on_compaction", False)),
        preload=_preload(value.get("preload")),
        max_open_files=value.get("max_open_files", DEFAULT_OPEN_FILES),
    )


def _preload(value: str | None) -> Preload | None:
    try:
        return None if value is None else Preload(value)
    except ValueError:
        raise invalid_choice("disk_cache.preload", value, list(Preload)) from None
