"""How large the buffers of a merge are, so that a compaction of any size takes about the same memory.

What grows with an SST rather than with the job are the hashes of its keys, which are kept until its filter is built:
eight bytes a row, tens of megabytes where rows are small.  They come out of the same budget.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from shale.format.block_writer import MERGED_PART_BYTES
from shale.format.stats import SstStats
from shale.store.retry import SINGLE_PUT_BYTES
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.output import PARTS_MAX

_READ_MIN_BYTES = 64 * 1024
_READ_MAX_BYTES = 4 * 1024 * 1024
_PART_MIN_BYTES = 1024 * 1024
_HASH_BYTES = 8
_ROW_BYTES = 128
"""What a row takes where no SST says how many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """``read_bytes`` is the size of one read from one source, ``part_bytes`` that of one write."""

    read_bytes: int
    part_bytes: int


def plan_buffers(options: ExecutorOptions, *, sources: int, copies: int, hash_bytes: int) -> Buffers:
    """Share ``memory_bytes`` between all ranges that are merged at the same time.

    Args:
        sources: of the merge, each of which holds ``copies`` of a read.
        copies: see ``sources``.
        hash_bytes: of one output SST; see ``hash_bytes_of``.
    """
    # The first bytes of an SST wait to be sent as one request, if there are no more: there are few hashes then.
    share = options.memory_bytes // max(1, options.max_active_ranges) - max(hash_bytes, SINGLE_PUT_BYTES)
    part_bytes = min(max(share // (2 * PARTS_MAX), _PART_MIN_BYTES), MERGED_PART_BYTES)
    for_reads = share - PARTS_MAX * part_bytes
    read_bytes = min(max(for_reads // max(1, sources * copies), _READ_MIN_BYTES), _READ_MAX_BYTES)
    return Buffers(read_bytes=read_bytes, part_bytes=part_bytes)


def hash_bytes_of(options: ExecutorOptions, sampled: Iterable[tuple[int, SstStats | None]], input_bytes: int) -> int:
    """Bytes of key hashes of one output SST, if its rows are like those of some inputs.

    Args:
        sampled: bytes of the blocks of some inputs, and their stats.
        input_bytes: of the whole job: there may be less than fills an SST.
    """
    counted = [(size, stats.num_rows) for size, stats in sampled if stats is not None]
    rows = sum(count for _, count in counted)
    row_bytes = sum(size for size, _ in counted) / rows if rows else _ROW_BYTES
    filters = sum(policy.whole_key for policy in options.sst.filter_policies)
    return int(min(options.max_sst_size_bytes, input_bytes) / max(row_bytes, 1) * _HASH_BYTES * filters)
