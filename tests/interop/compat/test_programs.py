"""The same programs on SlateDB's package and on Shale: equal rows, sequence numbers and kinds of errors."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours
from tests.interop.compat.programs import BUSY, Harness, Program, Side, Step, file_store, memory_store

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("SHALE_COMPAT_SEEDS", "3"))
SOAK_ROUNDS = int(os.environ.get("SHALE_SOAK_ROUNDS", "50"))
STEPS = 120
EVERYTHING = ("scan", ("db", 0), (None, True, None, True), None, "ASCENDING", "MEMORY")
HARNESSES = {
    "merges": Harness(),
    "plain": Harness(merges=False),
    "segments": Harness(segments=True),
    "no wal": Harness(wal=False),
    "busy": Harness(busy=True, settings=BUSY),
    "busy segments": Harness(busy=True, segments=True, settings=BUSY),
}


async def compare(harness: Harness, stores: tuple[Any, Any], steps: list[Step]) -> None:
    """Run both packages, and stop at the first difference."""
    theirs, mine = (Side(api, store, harness) for api, store in zip((wheel, ours), stores, strict=True))
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


def run_program(harness: str, seed: int, steps: int, folder: Path) -> None:
    """Run one program with one set of options; every third program uses files."""
    make: Callable[[Any, Path], Any] = file_store if seed % 3 == 2 else memory_store
    folders = [folder / f"{seed}-{name}" for name in ("theirs", "ours")]
    for each in folders:
        each.mkdir()
    stores = make(wheel, folders[0]), make(ours, folders[1])
    asyncio.run(compare(HARNESSES[harness], stores, list(Program(seed, HARNESSES[harness]).steps(steps))))
    if make is file_store:
        # In the end each opens what the other one has made of it.
        swapped = make(wheel, folders[1]), make(ours, folders[0])
        asyncio.run(
            compare(HARNESSES[harness], swapped, [("open",), EVERYTHING, ("put", b"aaa-1", b"x", ("DEFAULT",), 0)])
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("harness", HARNESSES)
def test_programs_see_the_same(harness: str, seed: int, tmp_path: Path) -> None:
    run_program(harness, seed, STEPS, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("harness", HARNESSES)
def test_many_long_programs_see_the_same(harness: str, tmp_path: Path) -> None:
    for seed in range(1000, 1000 + SOAK_ROUNDS):
        run_program(harness, seed, 10 * STEPS, tmp_path)
