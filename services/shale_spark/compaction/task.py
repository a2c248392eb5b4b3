"""One range of a compaction in a Python worker of an executor, with the same executor as in any worker."""

from functools import partial

import anyio

from shale.concurrency.first_error import first_error
from shale.env import Env
from shale.errors import ShaleError
from shale.telemetry.metrics import Metrics
from shale.types import CompactionContext, Subcompaction
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.progress import JobProgress
from shale_spark.compaction.driver_client import AttemptLost, DriverClient, Superseded
from shale_spark.compaction.messages import RangeStart, TaskHello
from shale_spark.compaction.task_plan import TaskPlan, decode_plan
from shale_spark.tasks import TaskInfo, run_async


def compact_range(plan: bytes, info: TaskInfo) -> bytes:
    """Merge what the range still lacks; everything written is reported when this returns.

    Raises:
        ShaleError: the job cannot succeed.
        AttemptLost: the driver or the store is out of reach, or a newer attempt took over and is gone too.
    """
    run_async(partial(attempt, decode_plan(plan), info))
    return b""


async def attempt(plan: TaskPlan, info: TaskInfo, env: Env) -> None:
    """Make one attempt at a range; see ``compact_range``."""
    metrics = Metrics()
    async with DriverClient(plan.driver, TaskHello(plan.token, plan.index, info.id), metrics) as link:
        try:
            start = await link.begin()
            if start is None:
                return
            await _merge(plan, start, link, env, metrics)
            await link.finish()
        except Superseded:
            await link.wait_for_disconnect()
            raise AttemptLost("a newer attempt took the range, and it or its driver is gone") from None
        except ShaleError as error:
            if error.retryable:
                raise AttemptLost(str(error)) from error
            await link.fail(error)
            raise


async def _merge(plan: TaskPlan, start: RangeStart, link: DriverClient, env: Env, metrics: Metrics) -> None:
    """Continue after the last recorded SST."""
    progress = JobProgress(
        retention_min_seq=plan.retention_min_seq,
        resumed=CompactionContext(
            subcompactions=(Subcompaction(range=plan.range, output_ssts=() if start.last is None else (start.last,)),),
            retention_min_seq=plan.retention_min_seq,
        ),
        on_sst=link.add,
    )
    stores = plan.where.connect(env, metrics, component="worker")
    executor = Executor(
        stores.main, plan.where.root, env, plan.options, transforms=plan.transforms.load(), metrics=metrics
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.report_on, progress)
            await executor.run(plan.job, progress)
            link.end()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        await stores.aclose()
