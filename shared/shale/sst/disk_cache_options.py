"""The options of the cache of parts of SSTs on disk; the cache itself is imported by processes that have one."""

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

DEFAULT_MAX_BYTES = 16 << 30
DEFAULT_PART_BYTES = 1 << 20
_PART_BYTES_MIN, _PART_BYTES_MAX = 1 << 10, 64 << 20


@dataclass(frozen=True, slots=True)
class DiskCacheOptions:
    """The options of a disk cache.

    Args:
        directory: created if it does not exist; processes may share it.
        max_bytes: limit of all files in it.
        part_bytes: size of the parts that are read from the store and cached.
    """

    directory: str
    max_bytes: int = DEFAULT_MAX_BYTES
    part_bytes: int = DEFAULT_PART_BYTES

    def __post_init__(self) -> None:
        if not self.directory:
            raise InvalidRequestError("disk_cache: a directory is missing")
        if not _PART_BYTES_MIN <= self.part_bytes <= _PART_BYTES_MAX:
            raise InvalidRequestError(f"disk_cache: parts take between {_PART_BYTES_MIN} and {_PART_BYTES_MAX} bytes")
        if self.max_bytes < self.part_bytes:
            raise InvalidRequestError("disk_cache: max_bytes must hold at least one part")
