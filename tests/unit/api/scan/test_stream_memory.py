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


@pytest.mark.parametrize("is_inside_value", [True, False])
def test_a_scan_that_waits_for_memory_keeps_none_of_large_values(is_inside_value: bool) -> None:
    """The scans that have all memory of scans may wait for that of large values: one within a value waits for none."""

    async def main() -> None:
        memory = ProcessMemory(response_bytes=64 * MIB)
        share, encoder = memory.scans.share(), JsonLines(memory.piece_bytes, LoopTurns())
        await share.take(memory.scan_bytes)
        await memory.scanned_values.take(20 * MIB)
        encoder.is_inside_value = is_inside_value
        source = ScanSource(SCAN, encoder, share, memory)
        source.pause()
        kept_bytes = (memory.scan_bytes, 20 * MIB) if is_inside_value else (0, 0)
        assert (memory.scans.used_bytes, memory.scanned_values.held_bytes) == kept_bytes
        with memory.scans.share() as others:
            await others.take(memory.scans.free_bytes)
            with anyio.move_on_after(0) as scope:
                await source.resume()
        assert scope.cancelled_caught is not is_inside_value

    anyio.run(main)
