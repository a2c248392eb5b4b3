"""Work on executors without rows in the JVM: small plans go out, small results come back.

Spark distributes only the numbers of the plans.  The function that its Python workers run carries the plans itself, and
its data goes directly between executors and the object store.  Sessions over Spark Connect do the same.

Jobs are cancelled from another thread by tag.  The tags of a classic session are local to a thread, so an interrupt
from another thread finds nothing (PySpark 4.3); the tags of the Spark context are shared by all threads.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ShaleError
from shale.service.runtime_tuning import reuse_large_buffers, share_one_arena
from shale_spark.errors import decode_error, encode_error

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
        id: unique in the Spark application; later attempts have larger ids.
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
        work: importable on the executors; called with a plan and the attempt.
        tag: lets ``interrupt`` end the tasks.

    Returns:
        The results in the order of the plans.

    Raises:
        ShaleError: what ``work`` raised; Spark does not retry such a plan.
        PySparkException: ``work`` raised another error as often as Spark's settings allow, or was interrupted.
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


def is_remote(spark: "SparkSession") -> bool:
    """Return whether the session is over Connect, where there is no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def tagged(spark: "SparkSession", tag: str) -> Iterator[None]:
    """Let ``interrupt`` end all jobs that this thread runs inside the block."""
    if is_remote(spark):
        add, remove = spark.addTag, spark.removeTag
    else:
        add, remove = spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def interrupt(spark: "SparkSession", tag: str) -> None:
    """End the jobs under a tag, in any thread.  Spark kills Python workers that go on after two seconds."""
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


@contextmanager
def open_in_portal(opened: AbstractAsyncContextManager[T]) -> Iterator[tuple[BlockingPortal, T]]:
    """Enter and exit an asynchronous context manager in a thread of its own.

    An error of the block is not passed to the context manager: a KeyboardInterrupt raised there would end the event
    loop before resources are released.

    Yields:
        The portal to the thread's event loop, and the value of the context manager.
    """
    with start_blocking_portal("asyncio") as portal:
        entered = portal.wrap_async_context_manager(opened)
        held = entered.__enter__()
        try:
            yield portal, held
        finally:
            entered.__exit__(None, None, None)
