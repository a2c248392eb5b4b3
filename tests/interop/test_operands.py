"""Merge operands of SlateDB in our compactions: folded by our operator, or kept as they are, it reads the same."""

import anyio
import pytest

from shale.types import FLAG_MERGE
from shale_compactor.execution.transforms import Transforms
from shale_compactor.process import Compactor, CompactorOptions
from tests.interop.compaction_house import FAST, ROOT, RUST_COMPACTS, WORKS, House, executor_options, run
from tests.interop.slatedb_writes import Concatenate, Shape, flush, opened, put_all, scanned, until
from tests.unit.compactor.ssts import read_run
from tests.unit.iter.test_traces import concatenate

FOLDS, PASSES = Transforms(operator=concatenate), Transforms()


async def merge_some(house: House, db, rounds: int) -> None:
    for round_ in range(rounds):
        await put_all(db, house.next_rows(40))
        for number in range(round_, 1500, 7):
            key, operand = b"key%05d" % number, b"<%d>" % round_
            await db.merge(key, operand)
            house.model[key] = house.model.get(key, b"") + operand
        await flush(db)


@pytest.mark.parametrize("transforms", [FOLDS, PASSES], ids=["folded", "passed"])
def test_operands_survive_our_compactions_and_then_its_own(tmp_path, transforms):
    async def test(house: House) -> None:
        shape = Shape(merge_operator=Concatenate())
        async with opened(house.rust, ROOT, shape) as db:
            await merge_some(house, db, 5)
            options = CompactorOptions(coordinator=FAST, worker=WORKS, executor=executor_options(), take_over=True)
            compactor = Compactor(house.store, ROOT, house.env, options, transforms=transforms)
            await compactor.start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compactor.run)
                await until(house.settled)
                tasks.cancel_scope.cancel()
            assert {row[0]: row[1] for row in await scanned(db)} == house.model
        (merged,) = (await house.manifest()).tree.compacted
        rows = await read_run(house.store, ROOT, house.env, merged)
        versions = len(rows) - len({row.key for row in rows})
        assert (versions == 0) == (transforms is FOLDS)
        assert any(row.flags & FLAG_MERGE for row in rows), "operands without a base stay operands"

        async with opened(
            house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS}, merge_operator=Concatenate())
        ) as db:
            await merge_some(house, db, 5)
            await until(house.settled)
            assert {row[0]: row[1] for row in await scanned(db)} == house.model

    run(test, tmp_path)
