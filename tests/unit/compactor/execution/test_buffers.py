"""The memory of a merge, divided among input blocks, output blocks and key hashes."""

import numpy as np
import pytest

from shale.format.sst.stats import SstStats
from shale.store.retry import SINGLE_PUT_BYTES
from shale_compactor.execution.buffers import hash_bytes_of, plan_buffers
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.run_writer import PARTS_MAX

MIB = 1024 * 1024


def stats(rows: int) -> SstStats:
    return SstStats(
        num_puts=rows, num_deletes=0, num_merges=0, raw_key_size=0, raw_val_size=0, blocks=np.zeros((0, 3), np.uint16)
    )


@pytest.mark.parametrize("sources", [1, 4, 8])
@pytest.mark.parametrize("hash_mib", [0, 5, 12])
def test_everything_together_stays_within_the_budget(sources: int, hash_mib: int) -> None:
    options = ExecutorOptions(memory_bytes=64 * MIB, max_active_ranges=2)
    buffers = plan_buffers(options, sources=sources, copies=2, hash_bytes=hash_mib * MIB)
    used = PARTS_MAX * buffers.part_bytes + sources * 2 * buffers.read_bytes + max(hash_mib * MIB, SINGLE_PUT_BYTES)
    assert used <= 32 * MIB
    assert buffers.part_bytes >= MIB
    assert buffers.read_bytes >= 64 * 1024


def test_many_sources_are_read_in_small_pieces_and_a_few_in_large_ones() -> None:
    options = ExecutorOptions()
    few, many = (plan_buffers(options, sources=sources, copies=2, hash_bytes=0) for sources in (1, 500))
    assert few.read_bytes == 4 * MIB
    assert many.read_bytes == 64 * 1024


def test_hashes_are_counted_by_the_rows_of_the_inputs() -> None:
    options = ExecutorOptions(max_sst_size_bytes=256 * MIB)
    sampled = [(128 * 1000, stats(1000)), (128 * 3000, stats(3000)), (999, None)]
    assert hash_bytes_of(options, sampled, 1024 * MIB) == 256 * MIB // 128 * 8
    assert hash_bytes_of(options, sampled, 64 * MIB) == 64 * MIB // 128 * 8, "a small job fills no SST"
    assert hash_bytes_of(options, [(1, None)], 64 * MIB) > 0, "old SSTs have no stats"
