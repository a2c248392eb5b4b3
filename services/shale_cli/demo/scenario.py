"""The steps of the demo: load, kill a writer, replace a live writer, compact, collect garbage, read all rows back."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Self

import anyio
from anyio.abc import TaskStatus
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.store.connect import open_store
from shale_cli.demo.daemons import Daemon
from shale_cli.demo.flights import read_flights
from shale_cli.demo.loader import ROWS_PER_BATCH, Batch, Loader
from shale_cli.demo.observer import DatabaseShape, Observer, deleted_by_gc
from shale_cli.demo.report import DemoReport
from shale_cli.demo.stack import DATABASE, GC_MIN_AGE_MS, Stack
from shale_cli.demo.verification import compare_scan, slatedb_scan

EXIT_FENCED = 80
LOOK_INTERVAL_S = 0.5
SETTLE_TIMEOUT_S = 60
L0_SETTLED = 4
STALE_KEY = b"~stale/written through a replaced writer"


@dataclass(frozen=True, slots=True)
class DemoDaemons:
    """The daemons of the demo: three successive writers, a compactor and a gc."""

    first: Daemon
    second: Daemon
    third: Daemon
    compactor: Daemon
    collector: Daemon

    @classmethod
    def of(cls, stack: Stack) -> Self:
        """Create the daemons without starting them."""
        first, second, third = (stack.writer(f"writer-{letter}") for letter in "abc")
        return cls(first, second, third, stack.compactor(), stack.collector())

    def kill_survivors(self) -> None:
        """Kill all daemons that still run."""
        for daemon in (self.first, self.second, self.third, self.compactor, self.collector):
            if daemon.is_running:
                daemon.kill()


@dataclass(slots=True)
class DemoRun:
    """One run of the demo: its daemons and its report."""

    stack: Stack
    cast: DemoDaemons
    console: Console
    report: DemoReport = field(default_factory=DemoReport)
    started_s: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one step with the elapsed time."""
        self.console.print(f"[dim]{time.monotonic() - self.started_s:6.1f} s[/]  {text}")


async def run_demo(directory: Path, console: Console) -> bool:
    """Run the demo in an empty directory; return whether every count matches."""
    stack = Stack(directory)
    demo = DemoRun(stack, DemoDaemons.of(stack), console)
    rows = read_flights()
    demo.say(f"{len(rows):,} flights read; the database is in [bold]{demo.stack.url}[/]")
    store = open_store(f"file://{demo.stack.store_directory}")
    observer = Observer(store, DATABASE, Env.system())
    try:
        await _start(demo)
        await _load(demo, rows, observer)
        await _settle(demo, observer)
        await _read_back(demo, dict(rows))
        await _stop(demo, observer)
    finally:
        demo.cast.kill_survivors()
        await store.aclose()
    demo.report.fact("seconds in all", f"{time.monotonic() - demo.started_s:.1f}")
    demo.report.fact("data", demo.stack.url)
    demo.report.fact("logs", demo.stack.logs)
    demo.report.show(console)
    return demo.report.holds


async def _start(demo: DemoRun) -> None:
    cast = demo.cast
    await cast.first.start()
    async with anyio.create_task_group() as starting:
        starting.start_soon(cast.compactor.start)
        starting.start_soon(cast.collector.start)
    for daemon in (cast.first, cast.compactor, cast.collector):
        demo.say(f"{daemon.name} is ready (pid {daemon.pid}, {daemon.admin_url})")


async def _load(demo: DemoRun, rows: list[tuple[bytes, bytes]], observer: Observer) -> None:
    first, second, third = demo.cast.first, demo.cast.second, demo.cast.third
    batches: list[Batch] = [rows[i : i + ROWS_PER_BATCH] for i in range(0, len(rows), ROWS_PER_BATCH)]
    began_s = time.monotonic()
    async with _watching(demo.console, observer, len(rows)) as on_progress, Loader.open(first) as loader:
        async with anyio.create_task_group() as loading:
            loading.start_soon(loader.load, batches, on_progress)
            await _until(lambda: loader.rows_acknowledged >= len(rows) // 3)
            await _kill_and_replace(demo, loader, first, second)
            await _until(lambda: loader.rows_acknowledged >= len(rows) * 2 // 3)
            await _replace_while_alive(demo, loader, second, third)
        await _wake_the_replaced(demo, loader, second)
        seconds = time.monotonic() - began_s
        demo.say(f"every row is durable: {len(rows) / seconds:,.0f} rows/s with both replacements")
        demo.report.check("rows acknowledged as durable", expected=len(rows), seen=loader.rows_acknowledged)
        demo.report.fact("requests sent again after a lost writer", loader.requests_repeated)
        demo.report.fact("load, rows per second", f"{len(rows) / seconds:,.0f}")
    demo.report.fact("stale requests rejected", loader.stale.rejected)
    demo.report.check("stale writes acknowledged after the takeover", expected=0, seen=loader.stale.acknowledged)
    demo.report.check("some stale write was rejected", expected=True, seen=loader.stale.rejected > 0)


async def _kill_and_replace(demo: DemoRun, loader: Loader, old: Daemon, new: Daemon) -> None:
    old.kill()
    code = await old.wait()
    demo.say(f"[red]{old.name} was killed with SIGKILL[/] at {loader.rows_acknowledged:,} rows (exit {code})")
    await new.start()
    loader.switch_to(new)
    demo.say(f"{new.name} replayed the WAL and continues (pid {new.pid})")


async def _replace_while_alive(demo: DemoRun, loader: Loader, old: Daemon, new: Daemon) -> None:
    old.pause()
    demo.say(f"[yellow]{old.name} is stopped (SIGSTOP), not dead[/], at {loader.rows_acknowledged:,} rows")
    await new.start()
    loader.switch_to(new)
    demo.say(f"{new.name} took over while {old.name} still exists (pid {new.pid})")


async def _wake_the_replaced(demo: DemoRun, loader: Loader, old: Daemon) -> None:
    """Resume the replaced writer; its first request is a stale write that waits in its socket."""
    async with anyio.create_task_group() as sending:
        sending.start_soon(loader.send_stale, old, [(STALE_KEY, b"must never be seen")])
        await anyio.sleep(0.2)
        old.resume()
        demo.say(f"{old.name} continues (SIGCONT) with a stale write in its socket")
    code = await old.wait()
    demo.say(f"[yellow]{old.name} found a newer epoch and exited with {code}[/]: fenced")
    demo.report.check(f"{old.name} ended as fenced", expected=EXIT_FENCED, seen=code)


async def _settle(demo: DemoRun, observer: Observer) -> None:
    """Wait until compaction has caught up and garbage collection has deleted its inputs."""
    with anyio.move_on_after(SETTLE_TIMEOUT_S):
        while (await observer.shape()).l0_count >= L0_SETTLED:
            await anyio.sleep(LOOK_INTERVAL_S)
        # The inputs of the last commit are deleted after min_age and after the checkpoint of that commit has expired.
        await anyio.sleep(GC_MIN_AGE_MS / 1000 + 6)
    shape = await observer.shape()
    demo.say(f"settled: {shape.l0_count} L0 and {shape.run_count} sorted runs, {shape.object_count} objects remain")
    demo.report.check("L0 tables below the compaction threshold", expected=True, seen=shape.l0_count < L0_SETTLED)
    demo.report.check("sorted runs exist", expected=True, seen=shape.run_count > 0)
    demo.report.check("three writers claimed three epochs", expected=3, seen=shape.writer_epoch)


async def _read_back(demo: DemoRun, expected: dict[bytes, bytes]) -> None:
    began_s = time.monotonic()
    ours = await compare_scan(demo.stack.url, expected)
    demo.say(f"a reader returned {ours.rows:,} rows in {time.monotonic() - began_s:.1f} s")
    demo.report.check("rows read back", expected=len(expected), seen=ours.rows)
    demo.report.check("rows equal to what was loaded", expected=len(expected), seen=ours.equal)
    demo.report.check(
        "rows that were not acknowledged, or twice", expected=(0, 0), seen=(ours.unknown_keys, ours.repeated_keys)
    )
    began_s = time.monotonic()
    theirs = await slatedb_scan(str(demo.stack.store_directory), DATABASE, expected)
    if theirs is None:
        demo.report.fact("rows read by SlateDB", "not installed here")
        return
    demo.say(
        f"SlateDB 0.17 opened the same directory and read {theirs.rows:,} rows in {time.monotonic() - began_s:.1f} s"
    )
    demo.report.check(
        "rows read by SlateDB, and equal", expected=(len(expected),) * 2, seen=(theirs.rows, theirs.equal)
    )


async def _stop(demo: DemoRun, observer: Observer) -> None:
    collector = demo.cast.collector
    codes = {daemon.name: await daemon.stop() for daemon in (demo.cast.third, demo.cast.compactor)}
    deleted = await deleted_by_gc(collector)
    codes[collector.name] = await collector.stop()
    demo.say("writer, compactor and collector stopped")
    demo.report.check("exit codes of the survivors", expected=[0, 0, 0], seen=list(codes.values()))
    shape = await observer.shape()
    for namespace in ("manifest", "compactions"):
        highest, boundary = await observer.highest_id(namespace), await observer.boundary(namespace)
        gone = highest - shape.objects[namespace]
        demo.report.check(f"{namespace} versions deleted by GC", expected=gone, seen=deleted.get(namespace, 0))
        demo.report.check(
            f"0 < {namespace} boundary {boundary} < latest {highest}", expected=True, seen=0 < boundary < highest
        )
    for resource in ("wal", "compacted"):
        demo.report.fact(f"{resource} objects deleted by GC", deleted.get(resource, 0))
        demo.report.check(f"GC deleted {resource} objects", expected=True, seen=deleted.get(resource, 0) > 0)


@asynccontextmanager
async def _watching(console: Console, observer: Observer, total: int) -> AsyncIterator[Callable[[int], None]]:
    """Show progress bars of the load and of the shape of the tree while the block runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        rows, shape = progress.add_task("rows durable", total=total), progress.add_task("tree", total=None)
        async with anyio.create_task_group() as watching:
            await watching.start(_show_shape, observer, progress, shape)
            yield lambda count: progress.advance(rows, count)
            watching.cancel_scope.cancel()


async def _show_shape(observer: Observer, progress: Progress, task: TaskID, *, task_status: TaskStatus[None]) -> None:
    task_status.started()
    while True:
        shape = await observer.shape()
        progress.update(task, description=_describe(shape))
        await anyio.sleep(LOOK_INTERVAL_S)


def _describe(shape: DatabaseShape) -> str:
    return f"manifest {shape.manifest_id}: {shape.l0_count} L0, {shape.run_count} runs, {shape.object_count} objects"


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.sleep(0.02)
