"""Progress of compactions on stderr: a bar on a terminal, otherwise a line every ten seconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from shale.compaction.status import CompactionInfo, Phase
from shale.env import Clock
from shale.errors import UnavailableError
from shale_cli.commands.compaction.rows import brief_line, line
from shale_cli.framework.output.writer import Output

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.types import Ulid

LINE_INTERVAL_S = 10.0
SCHEDULING_HINT_S = 15.0
"""Seconds without scheduling before a hint is shown; coordinators poll every five seconds."""

PAUSE_S = 5.0
OnProgress = Callable[[CompactionInfo], None]


async def wait_through_outages(
    admin: "Admin", compaction_id: str, on_progress: OnProgress, output: Output, *, pause_s: float = PAUSE_S
) -> CompactionInfo:
    """Wait for a compaction, also through outages of the store: compactions take hours, and their daemons wait, too.

    Raises:
        UnavailableError: the store was unreachable from the start.
    """
    has_progress = False

    def note(info: CompactionInfo) -> None:
        nonlocal has_progress
        has_progress = True
        on_progress(info)

    while True:
        try:
            return await admin.wait_for_compaction(compaction_id, note)
        except UnavailableError as error:
            if not has_progress:
                raise
            output.note(f"{compaction_id}: {error}; still waiting")
        await anyio.sleep(pause_s)


@contextmanager
def show_progress(output: Output, clock: Clock) -> Iterator[OnProgress]:
    """Yield a progress callback for ``wait_for_compaction``; with ``--quiet`` it shows nothing."""
    if output.quiet:
        yield lambda _info: None
    elif sys.stderr.isatty():
        with _bar(clock.monotonic_s) as on_progress:
            yield on_progress
    else:
        yield CompactionProgressLines(output, clock.monotonic_s)


class SchedulingHint:
    """Hints that no coordinator seems to run when a compaction stays unscheduled."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s: dict[Ulid, float] = {}

    def hint(self, info: CompactionInfo) -> str:
        """Return the hint for a compaction, or an empty string."""
        since_s = self._since_s.setdefault(info.id, self._now_s())
        if info.phase is not Phase.SUBMITTED or self._now_s() - since_s < SCHEDULING_HINT_S:
            return ""
        return "  not scheduled yet: is a compactor running?"


class CompactionProgressLines:
    """Prints a line when the phase or the compaction changes, and every ten seconds."""

    def __init__(self, output: Output, now_s: Callable[[], float]) -> None:
        self._output = output
        self._now_s = now_s
        self._watch = SchedulingHint(now_s)
        self._last: tuple[object, object] | None = None
        self._next_s = 0.0

    def __call__(self, info: CompactionInfo) -> None:
        """Print a line if it is due."""
        now_s, hint = self._now_s(), self._watch.hint(info)
        if self._last == (info.id, info.phase) and now_s < self._next_s:
            return
        self._last = info.id, info.phase
        self._next_s = now_s + LINE_INTERVAL_S
        self._output.note(line(info) + hint)


@contextmanager
def _bar(now_s: Callable[[], float]) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    tasks: dict[Ulid, TaskID] = {}
    watch = SchedulingHint(now_s)
    hints: dict[Ulid, str] = {}
    # The bar has a fixed width: otherwise it would have no space within eighty columns.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(10),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:

        def on_progress(info: CompactionInfo) -> None:
            if info.id not in tasks:
                tasks[info.id] = progress.add_task(str(info.id), total=100.0, status="")
            done = info.progress.percentage
            hint = watch.hint(info).strip()
            if hint and hints.setdefault(info.id, "") != hint:
                hints[info.id] = hint
                progress.console.print(f"{info.id}: {hint}", soft_wrap=True, highlight=False)
            progress.update(tasks[info.id], completed=done if done is not None else 0.0, status=brief_line(info))

        yield on_progress
