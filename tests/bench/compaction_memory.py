"""Compacts a database in this process and prints by how many bytes its memory grew at the most.

Usage: ``python -m tests.bench.compaction_memory DIRECTORY WARM_UP``.  A first compaction, of another and small
database, loads what is loaded once, kernels among it.
"""

import asyncio
import resource
import sys
from pathlib import Path

from shale.kernels.choice import load_kernels
from shale.service.allocator import return_large_buffers, share_one_arena
from shale_compactor.execution.options import ExecutorOptions
from tests.bench.compaction_load import compact


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(directory: str, warm_up: str) -> None:
    """Compact the small one, note the peak, compact the large one."""
    share_one_arena()  # as every daemon does, and so is the next
    return_large_buffers()
    load_kernels()
    asyncio.run(compact(Path(warm_up), ExecutorOptions(memory_bytes=1 << 20)))
    before = peak_bytes()
    asyncio.run(compact(Path(directory), ExecutorOptions()))
    sys.stdout.write(f"{peak_bytes() - before}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
