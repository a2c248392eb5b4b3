"""``shale.Admin`` beside a coordinator of SlateDB: requests that it runs, and requests that it ignores.

Source: docs/reference/protocol.md 6.13.
"""

import anyio
import pytest

import shale
from shale.admin.compactions import CancelIgnored
from shale.compaction.requests import Full, Sources
from shale.compaction.status import Phase
from shale.types import CompactionStatus
from tests.interop.compaction.harness import CALM, ROOT, Harness, run, status_of
from tests.interop.slatedb_databases import Shape, opened, scanned, until


def test_it_runs_what_we_submit_and_we_tell_how_it_went(tmp_path):
    """I7: L0s into a run, then a full compaction; progress, times and attempts come from its own versions."""

    async def test(harness: Harness) -> None:
        async with (
            opened(harness.rust, ROOT, Shape({"compactor_options": CALM})) as db,
            shale.Admin(ROOT, store=harness.store, env=harness.env) as admin,
        ):
            await harness.flush_l0s(db, 3)
            l0 = (await harness.manifest()).tree.l0
            told = []
            (job,) = await admin.submit_compaction(Sources(l0_view_ids=tuple(view.id for view in l0)))
            done = await admin.wait_for_compaction(job.id, told.append, poll_interval_s=0.02)
            assert (done.phase, done.attempts, done.error) == (Phase.COMPLETED, 1, None)
            assert done.created_ms <= done.started_ms <= done.finished_ms
            assert [view.id for view in done.inputs] == [view.id for view in l0]
            assert done.outputs
            assert told[0].phase is not Phase.COMPLETED
            (full,) = await admin.submit_compaction(Full())
            assert (await admin.wait_for_compaction(full.id, poll_interval_s=0.02)).phase is Phase.COMPLETED
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model

    run(test, tmp_path)


def test_it_does_not_know_of_cancelling(tmp_path):
    """Its next write restores its own copy, and the administrator receives that outcome."""

    async def test(harness: Harness) -> None:
        nobody_works = {**CALM, "worker": None}
        async with (
            opened(harness.rust, ROOT, Shape({"compactor_options": nobody_works})) as db,
            shale.Admin(ROOT, store=harness.store, env=harness.env) as admin,
        ):
            await harness.flush_l0s(db, 3)
            l0 = Sources(l0_view_ids=tuple(view.id for view in (await harness.manifest()).tree.l0))
            (job,) = await admin.submit_compaction(l0)

            async def is_scheduled() -> bool:
                return await status_of(harness, job.id) is CompactionStatus.SCHEDULED

            async def give_it_something_to_write() -> None:
                async def is_cancelled() -> bool:
                    return await status_of(harness, job.id) is CompactionStatus.FAILED

                await until(is_cancelled)
                await admin.submit_compaction(l0)

            await until(is_scheduled)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(give_it_something_to_write)
                with pytest.raises(CancelIgnored, match="is scheduled after all"):
                    await admin.cancel_compaction(job.id, confirm_s=20, poll_interval_s=0.05)
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model

    run(test, tmp_path)
