"""Buffer sizes of a merge, so that memory does not grow with the size of the compaction.

The key hashes of an output SST are kept until its filter is built: eight bytes for each row, tens of megabytes with
small rows.  They are part of the same budget.
"""

from collections.abc import Iterable

from shale.core.lazy_dataclass import dataclass
from shale.format.blocks.output import MERGED_PART_BYTES
from shale.format.sst.stats import SstStats
from shale.store.retry import SINGLE_PUT_BYTES
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.run_writer import PARTS_MAX

_READ_MIN_BYTES = 64 * 1024
_READ_MAX_BYTES = 4 * 1024 * 1024
_PART_MIN_BYTES = 1024 * 1024
_HASH_BYTES = 8
_ROW_BYTES = 128
"""Assumed size of a row if no input SST has stats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Buffer sizes in bytes: ``read_bytes`` of one read from one source, ``part_bytes`` of one upload part."""

    read_bytes: int
    part_bytes: int


def plan_buffers(options: ExecutorOptions, *, sources: int, copies: int, hash_bytes: int) -> Buffers:
    """Divide ``memory_bytes`` between the ranges that are merged concurrently.

    Args:
        sources: number of sources of the merge.
        copies: number of buffers of one read that each source holds.
        hash_bytes: size of the key hashes of one output SST; see ``hash_bytes_of``.
    """
    # Up to SINGLE_PUT_BYTES of a new SST are buffered for a single PUT; there are few hashes then.
    share = options.memory_bytes // max(1, options.max_active_ranges) - max(hash_bytes, SINGLE_PUT_BYTES)
    part_bytes = min(max(share // (2 * PARTS_MAX), _PART_MIN_BYTES), MERGED_PART_BYTES)
    for_reads = share - PARTS_MAX * part_bytes
    read_bytes = min(max(for_reads // max(1, sources * copies), _READ_MIN_BYTES), _READ_MAX_BYTES)
    return Buffers(read_bytes=read_bytes, part_bytes=part_bytes)


def hash_bytes_of(options: ExecutorOptions, sampled: Iterable[tuple[int, SstStats | None]], input_bytes: int) -> int:
    """Estimate the size of the key hashes of one output SST from sampled inputs.

    Args:
        sampled: data size in bytes and stats of some inputs.
        input_bytes: input size of the whole job, which may be less than one SST.
    """
    counted = [(size, stats.num_rows) for size, stats in sampled if stats is not None]
    rows = sum(count for _, count in counted)
    row_bytes = sum(size for size, _ in counted) / rows if rows else _ROW_BYTES
    filters = sum(policy.whole_key for policy in options.sst.filter_policies)
    return int(min(options.max_sst_size_bytes, input_bytes) / max(row_bytes, 1) * _HASH_BYTES * filters)
