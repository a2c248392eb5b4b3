"""What is seen while waiting: a bar on a terminal, else a line every ten seconds; always on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from shale.compaction.status import CompactionInfo, Phase
from shale.env import Clock
from shale.errors import UnavailableError
from shale_cli.compaction_rows import brief_line, line
from shale_cli.output import Output

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.types import Ulid

LINE_INTERVAL_S = 10.0
PATIENCE_S = 15.0
"""Coordinators look every five seconds."""

PAUSE_S = 5.0
OnProgress = Callable[[CompactionInfo], None]


async def wait_patiently(
    admin: "Admin", compaction_id: str, on_progress: OnProgress, output: Output, *, pause_s: float = PAUSE_S
) -> CompactionInfo:
    """Wait on although the store goes away in between: compactions take hours, and their daemons wait as well.

    Raises:
        UnavailableError: the store could not be reached from the start.
    """
    looked = False

    def note(info: CompactionInfo) -> None:
        nonlocal looked
        looked = True
        on_progress(info)

    while True:
        try:
            return await admin.wait_for_compaction(compaction_id, note)
        except UnavailableError as error:
            if not looked:
                raise
            output.note(f"{compaction_id}: {error}; still waiting")
        await anyio.sleep(pause_s)


@contextmanager
def watching(output: Output, clock: Clock) -> Iterator[OnProgress]:
    """A listener for ``wait_for_compaction`` that shows how far it is; none is shown when it shall be quiet."""
    if output.quiet:
        yield lambda _info: None
    elif sys.stderr.isatty():
        with _bar(clock.monotonic_s) as on_progress:
            yield on_progress
    else:
        yield Lines(output, clock.monotonic_s)


class Watch:
    """What is said about a compaction beyond its state: that nobody seems to be there to schedule it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s: dict[Ulid, float] = {}

    def hint(self, info: CompactionInfo) -> str:
        """Empty, or a question that helps."""
        since_s = self._since_s.setdefault(info.id, self._now_s())
        if info.phase is not Phase.SUBMITTED or self._now_s() - since_s < PATIENCE_S:
            return ""
        return "  nobody has scheduled it yet: is a compactor running?"


class Lines:
    """One line when the phase changes or the compaction does, and every ten seconds in between."""

    def __init__(self, output: Output, now_s: Callable[[], float]) -> None:
        self._output = output
        self._now_s = now_s
        self._watch = Watch(now_s)
        self._told: tuple[object, object] | None = None
        self._next_s = 0.0

    def __call__(self, info: CompactionInfo) -> None:
        """Tell, if it is time."""
        now_s, hint = self._now_s(), self._watch.hint(info)
        if self._told == (info.id, info.phase) and now_s < self._next_s:
            return
        self._told = info.id, info.phase
        self._next_s = now_s + LINE_INTERVAL_S
        self._output.note(line(info) + hint)


@contextmanager
def _bar(now_s: Callable[[], float]) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    tasks: dict[Ulid, TaskID] = {}
    watch = Watch(now_s)
    hints: dict[Ulid, str] = {}
    # The bar has a width of its own: in eighty columns nothing would be left for it.
    columns = (TextColumn("{task.description}"), BarColumn(10), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:

        def on_progress(info: CompactionInfo) -> None:
            if info.id not in tasks:
                tasks[info.id] = progress.add_task(str(info.id), total=100.0, told="")
            done = info.progress.percentage
            hint = watch.hint(info).strip()
            if hint and hints.setdefault(info.id, "") != hint:
                hints[info.id] = hint
                progress.console.print(f"{info.id}: {hint}", soft_wrap=True, highlight=False)
            progress.update(tasks[info.id], completed=done if done is not None else 0.0, told=brief_line(info))

        yield on_progress
