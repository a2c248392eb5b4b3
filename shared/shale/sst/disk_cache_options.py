"""The options of the cache of parts of SSTs on disk; the cache itself is imported by processes that have one."""

from dataclasses import replace
from enum import StrEnum

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

DEFAULT_MAX_BYTES = 16 << 30
DEFAULT_PART_BYTES = 1 << 20
DEFAULT_OPEN_FILES = 128
_PART_BYTES_MIN, _PART_BYTES_MAX = 1 << 10, 64 << 20


class Preload(StrEnum):
    """What to load into the disk cache when a database is opened."""

    L0 = "l0"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DiskCacheOptions:
    """The options of a disk cache.

    Args:
        directory: created if it does not exist; processes may share it.
        max_bytes: limit of all files in it.
        part_bytes: size of the parts that are read from the store and cached.
        cache_on_flush: SSTs that this process flushes enter the cache as they are uploaded.
        cache_on_compaction: so do the SSTs of a compactor in this process.
        preload: load whole SSTs when the database is opened, before the open returns; ``None``: none.
        max_open_files: parts that a database keeps open for reads.
    """

    directory: str
    max_bytes: int = DEFAULT_MAX_BYTES
    part_bytes: int = DEFAULT_PART_BYTES
    cache_on_flush: bool = False
    cache_on_compaction: bool = False
    preload: Preload | None = None
    max_open_files: int = DEFAULT_OPEN_FILES

    def __post_init__(self) -> None:
        if self.max_open_files < 1:
            raise InvalidRequestError("disk_cache: max_open_files must be greater than 0")
        if not self.directory:
            raise InvalidRequestError("disk_cache: a directory is missing")
        if not _PART_BYTES_MIN <= self.part_bytes <= _PART_BYTES_MAX:
            raise InvalidRequestError(f"disk_cache: parts take between {_PART_BYTES_MIN} and {_PART_BYTES_MAX} bytes")
        if self.max_bytes < self.part_bytes:
            raise InvalidRequestError("disk_cache: max_bytes must hold at least one part")

    @property
    def shared(self) -> "DiskCacheOptions":
        """The options of the directory, which handles with other habits share."""
        return replace(self, cache_on_flush=False, cache_on_compaction=False, preload=None)
