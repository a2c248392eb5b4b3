"""Progress of Spark jobs: a bar for each stage on a terminal, else a line every ten seconds; always on stderr."""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from shale.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, TaskID

    from shale_cli.framework.output.writer import Output

BAR_INTERVAL_S = 0.5
LINE_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class StageProgress:
    """One stage of a running job, in tasks."""

    id: int
    tasks: int
    done: int
    running: int
    failed: int

    def line(self) -> str:
        """Return a line for people."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"stage {self.id}: {self.done} of {self.tasks} tasks, {self.running} running{failed}"


ReadStages = Callable[[], Sequence[StageProgress]]


def active_stages(spark: "SparkSession") -> tuple[StageProgress, ...]:
    """Return the running stages; blocks for a moment.  A session over Connect shows its own progress."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return ()
    tracker = context.statusTracker()
    found = [(stage_id, tracker.getStageInfo(stage_id)) for stage_id in tracker.getActiveStageIds()]
    return tuple(
        StageProgress(stage_id, info.numTasks, info.numCompletedTasks, info.numActiveTasks, info.numFailedTasks)
        for stage_id, info in found
        if info is not None
    )


@asynccontextmanager
async def watching(read_stages: ReadStages, output: "Output") -> AsyncIterator[None]:
    """Show the running stages while the block runs, unless the output is quiet."""
    if output.quiet:
        yield
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_bars if sys.stderr.isatty() else _lines, read_stages, output)
        yield
        tasks.cancel_scope.cancel()


async def _lines(read_stages: ReadStages, output: "Output") -> None:
    while True:
        await anyio.sleep(LINE_INTERVAL_S)
        for stage in await anyio.to_thread.run_sync(read_stages, abandon_on_cancel=True):
            output.note(stage.line())


async def _bars(read_stages: ReadStages, _output: "Output") -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    shown: dict[int, TaskID] = {}
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        while True:
            _show(progress, shown, await anyio.to_thread.run_sync(read_stages, abandon_on_cancel=True))
            await anyio.sleep(BAR_INTERVAL_S)


def _show(progress: "Progress", shown: "dict[int, TaskID]", stages: Sequence[StageProgress]) -> None:
    """Update one bar for each running stage; remove the bars of ended ones."""
    for gone in shown.keys() - {stage.id for stage in stages}:
        progress.remove_task(shown.pop(gone))
    for stage in stages:
        if stage.id not in shown:
            shown[stage.id] = progress.add_task("", total=stage.tasks)
        progress.update(shown[stage.id], completed=stage.done, description=stage.line())
