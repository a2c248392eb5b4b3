"""What is seen while waiting: a bar on a terminal, else a line every ten seconds; always on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shale_cli.compaction_rows import line
from shale_cli.output import Output

if TYPE_CHECKING:
    from shale.compaction.status import CompactionInfo

LINE_INTERVAL_S = 10.0
OnProgress = Callable[["CompactionInfo"], None]


@contextmanager
def watching(output: Output) -> Iterator[OnProgress]:
    """A listener for ``wait_for_compaction`` that shows how far it is; none is shown when it shall be quiet."""
    if output.quiet:
        yield lambda _info: None
    elif sys.stderr.isatty():
        with _bar() as on_progress:
            yield on_progress
    else:
        yield Lines(output)


class Lines:
    """One line when the phase changes or the compaction does, and every ten seconds in between."""

    def __init__(self, output: Output, now_s: Callable[[], float] | None = None) -> None:
        from shale.env import SystemClock

        self._output = output
        self._now_s = now_s if now_s is not None else SystemClock().monotonic_s
        self._told: tuple[object, object] | None = None
        self._next_s = 0.0

    def __call__(self, info: "CompactionInfo") -> None:
        """Tell, if it is time."""
        now_s = self._now_s()
        if self._told == (info.id, info.phase) and now_s < self._next_s:
            return
        self._told = info.id, info.phase
        self._next_s = now_s + LINE_INTERVAL_S
        self._output.note(line(info))


@contextmanager
def _bar() -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    tasks: dict[object, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:

        def on_progress(info: "CompactionInfo") -> None:
            if info.id not in tasks:
                tasks[info.id] = progress.add_task(str(info.id), total=100.0, told="")
            done = info.progress.percentage
            told = line(info).removeprefix(f"{info.id} ")
            progress.update(tasks[info.id], completed=done if done is not None else 0.0, told=told)

        yield on_progress
