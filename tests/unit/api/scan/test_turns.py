"""Scans that run at the same time encode their pieces in turn."""

import asyncio
from collections import defaultdict

import anyio
import pytest

import shale
from shale.api.scan.formats import FORMATS, ScanFormat
from shale.concurrency.loop_turns import LoopTurns
from shale.store.memory import MemoryStore
from tests.loop_rounds import counted_rounds

SCANS = 5
ROWS = 2_000


@pytest.mark.parametrize("media_type", FORMATS)
def test_one_round_of_the_event_loop_has_pieces_of_one_scan(media_type: str) -> None:
    """Otherwise every other request waits for the pieces of all scans."""

    async def main() -> dict[int, set[int]]:
        turns = LoopTurns()
        encoders = [FORMATS[media_type](lambda: 1 << 16, turns) for _ in range(SCANS)]
        by_round: defaultdict[int, set[int]] = defaultdict(set)

        async def read(number: int, encoder: ScanFormat) -> None:
            async for _ in encoder.pieces(db.scan()):
                by_round[rounds.count].add(number)

        async with shale.Db.open("turns", store=MemoryStore()) as db:
            for number in range(ROWS):
                await db.put(b"%04d" % number, bytes(100))
            async with counted_rounds() as rounds, anyio.create_task_group() as tasks:
                for place, encoder in enumerate(encoders):
                    tasks.start_soon(read, place, encoder)
        assert [encoder.rows for encoder in encoders] == [ROWS] * SCANS
        return by_round

    by_round = asyncio.run(main())
    assert len(by_round) >= SCANS
    assert max(map(len, by_round.values())) == 1
