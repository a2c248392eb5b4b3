"""The same programs on SlateDB's package and on ours: equal rows, equal sequence numbers, equal errors by kind."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours
from tests.interop.both_sides import BUSY, House, Program, Side, Step, file_store, memory_store

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("SHALE_COMPAT_SEEDS", "3"))
STEPS = 120
HOUSES = {
    "merges": House(),
    "plain": House(merges=False),
    "segments": House(segments=True),
    "no wal": House(wal=False),
    "busy": House(busy=True, settings=BUSY),
    "busy segments": House(busy=True, segments=True, settings=BUSY),
}


async def compare(house: House, stores: tuple[Any, Any], steps: list[Step]) -> None:
    """Run both, and stop at the first difference."""
    theirs, mine = (Side(api, store, house) for api, store in zip((wheel, ours), stores, strict=True))
    done: list[Step] = []
    try:
        for step in steps:
            done.append(step)
            expected = await theirs.run(step)
            found = await mine.run(step)
            tail = "\n".join(map(str, done[-40:]))
            assert found == expected, f"step {len(done)} of:\n{tail}"
    finally:
        for side in (theirs, mine):
            await side.run(("close", None))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("house", HOUSES)
def test_programs_see_the_same(house: str, seed: int, tmp_path: Path) -> None:
    make: Callable[[Any, Path], Any] = file_store if seed % 3 == 2 else memory_store
    folders = [tmp_path / name for name in ("theirs", "ours")]
    for folder in folders:
        folder.mkdir()
    stores = make(wheel, folders[0]), make(ours, folders[1])
    steps = list(Program(seed, HOUSES[house]).steps(STEPS))
    asyncio.run(compare(HOUSES[house], stores, steps))
