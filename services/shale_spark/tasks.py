"""Work on executors without a row in the JVM: small plans go out, small results come back.

Spark distributes nothing but the numbers of the plans.  The function that its Python workers run carries the plans
itself; what they read and write goes between them and the object store.  Sessions over Spark Connect do the same.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from shale.env import Env
from shale.errors import ShaleError
from shale.service.allocator import reuse_large_buffers, share_one_arena
from shale_spark.tags import tagged
from shale_spark.task_errors import decode_error, encode_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")

_SCHEMA = "plan long, is_error boolean, result binary"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One attempt at one task.

    Args:
        partition: the number of the plan.
        attempt: of this plan, from 0; a lost executor or a speculative copy makes another one.
        stage: Spark's stage.
        id: unique in the Spark application; what was started later has a larger one.
    """

    partition: int
    attempt: int
    stage: int
    id: int


Work = Callable[[bytes, TaskInfo], bytes]


def run_tasks(spark: "SparkSession", plans: Sequence[bytes], work: Work, *, tag: str | None = None) -> list[bytes]:
    """Run ``work`` on each plan as a task of its own; blocks, so call it from a thread.

    Args:
        spark: a classic session or one over Connect.
        plans: about a kilobyte each.
        work: importable on the executors; called with a plan and with which attempt this is.
        tag: lets ``shale_spark.tags.interrupt`` end the tasks.

    Returns:
        the results in the order of the plans.

    Raises:
        ShaleError: what ``work`` raised, as it was raised; Spark does not try such a plan again.
        PySparkException: ``work`` raised something else as often as Spark's settings allow, or was interrupted.
    """
    if not plans:
        return []
    carried = tuple(plans)

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return _run_partition(carried, work, batches)

    frame = spark.range(0, len(carried), 1, len(carried)).mapInArrow(run, _SCHEMA)
    with nullcontext() if tag is None else tagged(spark, tag):
        rows = frame.collect()
    results: dict[int, bytes] = {}
    for row in rows:
        if row["is_error"]:
            raise decode_error(bytes(row["result"]))
        results[row["plan"]] = bytes(row["result"])
    return [results[number] for number in range(len(carried))]


def run_async(main: Callable[[Env], Awaitable[T]], *, cpu_threads: int = 2) -> T:
    """Run asynchronous code in a task: Spark's Python workers have no event loop."""
    prepare_process()
    return anyio.run(main, Env.system(cpu_threads=cpu_threads))


@cache
def prepare_process() -> None:
    """Tell the allocator, once, that this process works with large buffers in several threads."""
    share_one_arena()
    reuse_large_buffers()


def _run_partition(
    plans: Sequence[bytes], work: Work, batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            is_error, result = _attempt(plans[number], work)
            columns: list[Any] = [
                pa.array([number], pa.int64()),
                pa.array([is_error], pa.bool_()),
                pa.array([result], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["plan", "is_error", "result"])


def _attempt(plan: bytes, work: Work) -> tuple[bool, bytes]:
    try:
        return False, work(plan, _task_info())
    except ShaleError as error:
        return True, encode_error(error)


def _task_info() -> TaskInfo:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called in a task"
    return TaskInfo(
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        stage=context.stageId(),
        id=context.taskAttemptId(),
    )
