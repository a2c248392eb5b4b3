"""Conversion of SlateDB's settings to Shale's options."""

from collections.abc import Mapping
from math import inf
from typing import Any

from shale.compat.slatedb.settings.durations import parse_duration_ms
from shale.compat.slatedb.writes import MAX_KEY_BYTES
from shale.engine.options import DbOptions
from shale.sst.disk_cache_options import DEFAULT_MAX_BYTES, DiskCacheOptions, Preload
from shale.store.options import RetryPolicy, StoreOptions
from shale.types import Compression

_PRELOADS = {None: None, "L0Sst": Preload.L0, "AllSst": Preload.ALL}


def seconds(text: str) -> float:
    """Return a duration of the settings in seconds."""
    return parse_duration_ms(text) / 1000


def db_options(values: Mapping[str, Any], **given: Any) -> DbOptions:
    """Return the options of a writer.

    Args:
        values: the content of ``Settings``.
        given: options that a builder adds.

    Raises:
        InvalidRequestError: an invalid combination.
    """
    interval = values["flush_interval"]
    return DbOptions(
        flush_interval_s=None if interval is None else seconds(interval),
        manifest_poll_interval_s=seconds(values["manifest_poll_interval"]),
        manifest_update_timeout_s=seconds(values["manifest_update_timeout"]),
        l0_sst_size_bytes=values["l0_sst_size_bytes"],
        max_wal_flushes_before_l0_flush=values["max_wal_flushes_before_l0_flush"],
        l0_max_ssts=values["l0_max_ssts"],
        l0_max_ssts_per_key=values["l0_max_ssts_per_key"],
        l0_flush_parallelism=values["l0_flush_parallelism"],
        max_unflushed_bytes=values["max_unflushed_bytes"],
        wal_enabled=values["wal_enabled"],
        compression=compression_of(values["compression_codec"]),
        min_filter_keys=values["min_filter_keys"],
        default_ttl_ms=_ttl_ms(values["default_ttl_millis"]),
        disk_cache=_disk_cache(values["object_store_cache_options"]),
        max_key_bytes=MAX_KEY_BYTES,
        checkpoint_flush_timeout_s=inf,
        writer_checkpoint=False,
        compactor=False,  # it runs SlateDB's own
        gc=False,
        **given,
    )


def compression_of(codec: str | None) -> Compression:
    """Return the compression of a codec name."""
    return Compression.NONE if codec is None else Compression[codec.upper()]


def store_options(values: Mapping[str, Any]) -> StoreOptions:
    """Return the retry options of the store."""
    return StoreOptions(retry=RetryPolicy(retries_max=values["object_store_max_retries"]))


def _ttl_ms(ttl_ms: int | None) -> int | None:
    return None if ttl_ms is None or ttl_ms >= 1 << 62 else ttl_ms


def _disk_cache(values: Mapping[str, Any]) -> DiskCacheOptions | None:
    folder, limit = values["root_folder"], values["max_cache_size_bytes"]
    if folder is None:
        return None
    return DiskCacheOptions(
        directory=folder,
        max_bytes=DEFAULT_MAX_BYTES if limit is None else limit,
        part_bytes=values["part_size_bytes"],
        cache_on_flush=values["cache_on_flush"],
        cache_on_compaction=values["cache_on_compaction"],
        preload=_PRELOADS[values["preload_disk_cache_on_startup"]],
        max_open_files=max(1, values["max_open_file_handles"]),
    )
