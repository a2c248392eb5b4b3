"""Options of job execution."""

from dataclasses import field

from shale.core.lazy_dataclass import dataclass
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import SstOptions

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """Options of job execution.

    Args:
        sst: options of output SSTs.
        max_sst_size_bytes: an output SST is closed at the next key once its blocks are larger.
        max_subcompactions: key ranges of one job that are merged concurrently.
        max_active_ranges: key ranges of all jobs of this process that are merged concurrently.
        memory_bytes: budget for read buffers, output parts and key hashes of all active ranges.
        metadata_cache_bytes: cache for indexes and filters of the inputs of one job.
        output_cache: disk cache that keeps a copy of the outputs, if its ``cache_on_compaction`` is set.
    """

    sst: SstOptions = field(default_factory=SstOptions)
    max_sst_size_bytes: int = 256 * _MIB
    max_subcompactions: int = 4
    max_active_ranges: int = 2
    memory_bytes: int = 48 * _MIB
    metadata_cache_bytes: int = 32 * _MIB
    output_cache: DiskCacheOptions | None = None
