"""Shale compacts SlateDB's merge operands: folded or kept, SlateDB reads the same values."""

import anyio
import pytest

from shale.types import FLAG_MERGE
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.execution.transforms import Transforms
from tests.interop.compaction.harness import FAST, ROOT, RUST_COMPACTS, WORKS, Harness, executor_options, run
from tests.interop.slatedb_databases import Concatenate, Shape, flush, opened, put_all, scanned, until
from tests.unit.compactor.ssts import read_run
from tests.unit.iter.traces import concatenate

FOLDS, PASSES = Transforms(operator=concatenate), Transforms()


async def merge_some(harness: Harness, db, rounds: int) -> None:
    for round_ in range(rounds):
        await put_all(db, harness.next_rows(40))
        for number in range(round_, 1500, 7):
            key, operand = b"key%05d" % number, b"<%d>" % round_
            await db.merge(key, operand)
            harness.model[key] = harness.model.get(key, b"") + operand
        await flush(db)


@pytest.mark.parametrize("transforms", [FOLDS, PASSES], ids=["folded", "passed"])
def test_operands_survive_our_compactions_and_then_its_own(tmp_path, transforms):
    async def test(harness: Harness) -> None:
        shape = Shape(merge_operator=Concatenate())
        async with opened(harness.rust, ROOT, shape) as db:
            await merge_some(harness, db, 5)
            options = CompactorOptions(coordinator=FAST, worker=WORKS, executor=executor_options(), take_over=True)
            compactor = Compactor(harness.store, ROOT, harness.env, options, transforms=transforms)
            await compactor.start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compactor.run)
                await until(harness.settled)
                tasks.cancel_scope.cancel()
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
        (merged,) = (await harness.manifest()).tree.compacted
        rows = await read_run(harness.store, ROOT, harness.env, merged)
        versions = len(rows) - len({row.key for row in rows})
        assert (versions == 0) == (transforms is FOLDS)
        assert any(row.flags & FLAG_MERGE for row in rows), "operands without a base stay operands"

        async with opened(
            harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS}, merge_operator=Concatenate())
        ) as db:
            await merge_some(harness, db, 5)
            await until(harness.settled)
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model

    run(test, tmp_path)
