"""Compacts a database in this process and prints by how many bytes its memory grew at the most.

Usage: ``python -m tests.bench.compaction.memory DIRECTORY WARM_UP``.  A first compaction, of another and small
database, loads what is loaded once, kernels among it.
"""

import asyncio
import sys
from pathlib import Path

from shale.service.runtime_tuning import reuse_large_buffers, share_one_arena
from shale_compactor.execution.options import ExecutorOptions
from tests.bench.compaction.load import compact

STATUS = Path("/proc/self/status")


def resident_bytes(line: str) -> int:
    """What the system says of this process: ``VmRSS``, or ``VmHWM``, its peak."""
    words = next(words for words in map(str.split, STATUS.read_text().splitlines()) if words[0] == f"{line}:")
    return int(words[1]) * 1024


def main(directory: str, warm_up: str) -> None:
    """Compact the small one, forget the peak, which loading kernels may have set, compact the large one."""
    share_one_arena()  # as every daemon does, and so is the next
    reuse_large_buffers()
    asyncio.run(compact(Path(warm_up), ExecutorOptions(memory_bytes=1 << 20)))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes("VmRSS")
    asyncio.run(compact(Path(directory), ExecutorOptions()))
    sys.stdout.write(f"{resident_bytes('VmHWM') - before}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
