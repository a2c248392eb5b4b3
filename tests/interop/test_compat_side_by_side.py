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
SOAK_ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
STEPS = 120
EVERYTHING = ("scan", ("db", 0), (None, True, None, True), None, "ASCENDING", "MEMORY")
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


def run_program(house: str, seed: int, steps: int, folder: Path) -> None:
    """One program in one house; every third one in files."""
    make: Callable[[Any, Path], Any] = file_store if seed % 3 == 2 else memory_store
    folders = [folder / f"{seed}-{name}" for name in ("theirs", "ours")]
    for each in folders:
        each.mkdir()
    stores = make(wheel, folders[0]), make(ours, folders[1])
    asyncio.run(compare(HOUSES[house], stores, list(Program(seed, HOUSES[house]).steps(steps))))
    if make is file_store:
        # In the end each opens what the other one has made of it.
        swapped = make(wheel, folders[1]), make(ours, folders[0])
        asyncio.run(compare(HOUSES[house], swapped, [("open",), EVERYTHING, ("put", b"aaa-1", b"x", ("DEFAULT",), 0)]))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("house", HOUSES)
def test_programs_see_the_same(house: str, seed: int, tmp_path: Path) -> None:
    run_program(house, seed, STEPS, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("house", HOUSES)
def test_many_long_programs_see_the_same(house: str, tmp_path: Path) -> None:
    for seed in range(1000, 1000 + SOAK_ROUNDS):
        run_program(house, seed, 10 * STEPS, tmp_path)
