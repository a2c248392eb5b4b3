"""What a scan that is paused, or waits, keeps of the memory of others."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from shale.api.scan.formats import JsonLines
from shale.api.scan.stream import ScanSource
from shale.concurrency.loop_turns import LoopTurns
from shale.service.memory.process_memory import ProcessMemory

MIB = 1 << 20
SCAN = cast("Any", SimpleNamespace(release=lambda: None))


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_scan_that_waits_for_memory_keeps_none_of_large_values(is_paused: bool) -> None:
    """The scans that have all memory of scans may wait for that of large values."""

    async def main() -> None:
        memory = ProcessMemory(response_bytes=64 * MIB)
        share = memory.scans.share()
        await share.take(memory.scan_bytes)
        source = ScanSource(SCAN, JsonLines(memory.piece_bytes, LoopTurns()), share, memory)
        await memory.large_values.take(20 * MIB)
        if is_paused:
            source.pause()
            assert (memory.scans.used_bytes, memory.responses.used_bytes) == (0, 0)
        share.reduce_to(0)
        with memory.scans.share() as others:
            await others.take(memory.scans.capacity_bytes)
            with anyio.move_on_after(0) as scope:
                await source.resume()
            assert scope.cancelled_caught
            assert memory.responses.used_bytes == 0

    anyio.run(main)
