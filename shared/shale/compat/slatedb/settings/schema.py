"""The schema of SlateDB's ``Settings``: its fields, their types, and their defaults.

Unknown fields are ignored, as in SlateDB.  Values are normalized when they are read, so that they are written with the
order, the defaults and the notation of SlateDB 0.17.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shale.compat.slatedb.settings.durations import format_duration, parse_duration_ms

Check = Callable[[Any], Any]
"""Returns the normalized value.  Raises ``ValueError`` for an invalid one."""

_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: its check, and its default."""

    check: Check
    default: Any = _REQUIRED


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f'string "{value}"'
        case list():
            return "sequence"
        case _:
            return "map"


def _unsigned(bits: int, name: str) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int:
            raise ValueError(f"invalid type: {_shown(value)}, expected {name}")
        if not 0 <= value < 1 << bits:
            raise ValueError(f"invalid value: {_shown(value)}, expected {name}")
        return value

    return check


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"invalid type: {_shown(value)}, expected a boolean")
    return value


def _string(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"invalid type: {_shown(value)}, expected a string")
    return value


def _duration(value: Any) -> str:
    return format_duration(parse_duration_ms(_string(value)))


def _one_of(*names: str) -> Check:
    def check(value: Any) -> str:
        if _string(value) not in names:
            raise ValueError(f"unknown variant `{value}`, expected one of {', '.join(f'`{name}`' for name in names)}")
        return str(value)

    return check


def _level(value: Any) -> str:
    names = [form(name) for name in ("Debug", "Info") for form in (str.upper, str, str.lower)]
    return str(_one_of(*names)(value)).capitalize()


def _options(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"invalid type: {_shown(value)}, expected a map")
    return {str(name): _string(each) for name, each in value.items()}


def _or_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def table(name: str, fields: Mapping[str, Field]) -> Check:
    """Return a check of an object with these fields."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"invalid type: {_shown(value)}, expected struct {name}")
        for field_name, field in fields.items():
            if field.default is _REQUIRED and field_name not in value:
                raise ValueError(f"missing field `{field_name}`")
        return {
            field_name: field.check(value.get(field_name, None if field.default is _REQUIRED else field.default))
            for field_name, field in fields.items()
        }

    return check


_USIZE = _unsigned(64, "usize")
_U64 = _unsigned(64, "u64")
_RETRIES = Field(_or_null(_unsigned(32, "u32")), None)
_LEVEL = Field(_or_null(_level), None)
_CODEC = Field(_or_null(_one_of("Snappy", "Zlib", "Lz4", "Zstd")), None)

WORKER: Final = {
    "max_concurrent_compactions": 4,
    "compactions_poll_interval": "5s",
    "heartbeat_interval": "10s",
    "max_sst_size": 256 << 20,
    "max_fetch_tasks": 4,
    "bytes_to_fetch": 2 << 20,
    "max_subcompactions": 4,
    "min_filter_keys": 1000,
    "compression_codec": None,
    "metric_level": None,
}

_worker = table(
    "CompactionWorkerOptions",
    {
        "max_concurrent_compactions": Field(_USIZE),
        "compactions_poll_interval": Field(_duration),
        "heartbeat_interval": Field(_duration),
        "max_sst_size": Field(_USIZE),
        "max_fetch_tasks": Field(_USIZE),
        "bytes_to_fetch": Field(_USIZE),
        "max_subcompactions": Field(_USIZE),
        "min_filter_keys": Field(_unsigned(32, "u32")),
        "compression_codec": _CODEC,
        "metric_level": _LEVEL,
    },
)

_compactor = table(
    "CompactorOptions",
    {
        "poll_interval": Field(_duration),
        "manifest_update_timeout": Field(_duration),
        "max_concurrent_compactions": Field(_USIZE),
        "enable_trivial_move": Field(_boolean, default=False),
        "scheduler_options": Field(_options, {}),
        "worker": Field(_or_null(_worker), WORKER),
        "metric_level": _LEVEL,
        "commit_compacted_interval": Field(_duration),
        "checkpoint_lifetime": Field(_duration, "900s"),
        "worker_heartbeat_timeout": Field(_duration),
        "object_store_max_retries": _RETRIES,
    },
)

_disk_cache = table(
    "ObjectStoreCacheOptions",
    {
        "root_folder": Field(_or_null(_string), None),
        "max_cache_size_bytes": Field(_or_null(_USIZE), None),
        "part_size_bytes": Field(_USIZE),
        "cache_on_flush": Field(_boolean),
        "cache_on_compaction": Field(_boolean),
        "preload_disk_cache_on_startup": Field(_or_null(_one_of("L0Sst", "AllSst")), None),
        "scan_interval": Field(_or_null(_duration)),
        "max_open_file_handles": Field(_USIZE),
    },
)

_swept = Field(
    _or_null(
        table(
            "GarbageCollectorDirectoryOptions",
            {
                "interval": Field(_or_null(_duration)),
                "min_age": Field(_duration),
                "dry_run": Field(_boolean, default=False),
            },
        )
    ),
    None,
)

_collector = table(
    "GarbageCollectorOptions",
    {
        "manifest_options": _swept,
        "wal_options": _swept,
        "wal_fence_options": _swept,
        "compacted_options": _swept,
        "compactions_options": _swept,
        "detach_options": Field(
            _or_null(table("GarbageCollectorScheduleOptions", {"interval": Field(_or_null(_duration))})), None
        ),
        "metric_level": _LEVEL,
        "boundary_files_enabled": Field(_boolean, default=True),
        "object_store_max_retries": _RETRIES,
    },
)

check_settings: Final = table(
    "Settings",
    {
        "flush_interval": Field(_or_null(_duration)),
        "wal_enabled": Field(_boolean),
        "manifest_poll_interval": Field(_duration),
        "manifest_update_timeout": Field(_duration),
        "min_filter_keys": Field(_unsigned(32, "u32")),
        "l0_sst_size_bytes": Field(_USIZE),
        "max_wal_flushes_before_l0_flush": Field(_USIZE),
        "l0_max_ssts": Field(_USIZE),
        "l0_max_ssts_per_key": Field(_USIZE),
        "l0_flush_parallelism": Field(_USIZE),
        "max_unflushed_bytes": Field(_USIZE),
        "compactor_options": Field(_or_null(_compactor), None),
        "compression_codec": _CODEC,
        "object_store_cache_options": Field(_disk_cache),
        "garbage_collector_options": Field(_or_null(_collector), None),
        "metric_level": Field(_level, "Info"),
        "default_ttl_millis": Field(_or_null(_U64), None),
        "object_store_max_retries": _RETRIES,
    },
)
"""Checks all settings; returns them in SlateDB's order and notation."""

_SWEPT: Final = {"interval": "600s", "min_age": "300s", "dry_run": False}

DEFAULTS: Final[dict[str, Any]] = {
    "flush_interval": "100ms",
    "wal_enabled": True,
    "manifest_poll_interval": "1s",
    "manifest_update_timeout": "300s",
    "min_filter_keys": 1000,
    "l0_sst_size_bytes": 64 << 20,
    "max_wal_flushes_before_l0_flush": 4096,
    "l0_max_ssts": 8,
    "l0_max_ssts_per_key": 8,
    "l0_flush_parallelism": 4,
    "max_unflushed_bytes": 1 << 30,
    "compactor_options": {
        "poll_interval": "5s",
        "manifest_update_timeout": "300s",
        "max_concurrent_compactions": 4,
        "worker": WORKER,
        "commit_compacted_interval": "1s",
        "worker_heartbeat_timeout": "30s",
    },
    "object_store_cache_options": {
        "root_folder": None,
        "max_cache_size_bytes": 16 << 30,
        "part_size_bytes": 4 << 20,
        "cache_on_flush": False,
        "cache_on_compaction": False,
        "scan_interval": "3600s",
        "max_open_file_handles": 1000,
    },
    "garbage_collector_options": {
        "manifest_options": _SWEPT,
        "wal_options": _SWEPT,
        "wal_fence_options": {**_SWEPT, "dry_run": True},
        "compacted_options": _SWEPT,
        "compactions_options": _SWEPT,
        "detach_options": {"interval": "600s"},
    },
}
"""The defaults of SlateDB 0.17, where they differ from a missing value."""
