"""How far a command is: a bar on a terminal, else a line every ten seconds; always on stderr.

A command that is stopped says what it had done until then.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shale.env import Clock
from shale_cli.output import Output

LINE_INTERVAL_S = 10.0

OnProgress = Callable[..., None]
"""``on_progress(done, total=None)``: call it as often as it is convenient."""


class Meter:
    """What was reached last, and the words for it."""

    def __init__(self, verb: str, unit: str) -> None:
        self._verb = verb
        self._unit = unit
        self.done = 0
        self.total: int | None = None

    def reach(self, done: int, total: int | None = None) -> None:
        """Note how far it is; a total that is not known any more stays as it was."""
        self.done = done
        self.total = total if total is not None else self.total

    def __str__(self) -> str:
        """One line: what, how much, of how much."""
        if not self.total:
            return f"{self._verb} {self.done:,} {self._unit}"
        return f"{self._verb} {self.done:,} of {self.total:,} {self._unit} ({self.done / self.total:.0%})"


@contextmanager
def progress(output: Output, clock: Clock, verb: str, unit: str) -> Iterator[OnProgress]:
    """Show how far it is while the body runs; ``progress(…, "exported", "rows")``.

    When the body is cancelled, by Ctrl-C or ``--timeout``, the last line says how far it came.
    """
    meter = Meter(verb, unit)
    try:
        if output.quiet:
            yield meter.reach
        elif sys.stderr.isatty():
            with _bar(meter) as on_progress:
                yield on_progress
        else:
            yield Lines(output, clock.monotonic_s, meter)
    except BaseException as error:
        if not isinstance(error, Exception):
            sys.stderr.write(f"shale: stopped: {meter}\n")
        raise


class Lines:
    """A line every ten seconds."""

    def __init__(self, output: Output, now_s: Callable[[], float], meter: Meter) -> None:
        self._output = output
        self._now_s = now_s
        self._meter = meter
        self._next_s = now_s() + LINE_INTERVAL_S

    def __call__(self, done: int, total: int | None = None) -> None:
        """Tell, if it is time."""
        self._meter.reach(done, total)
        if self._now_s() >= self._next_s:
            self._next_s = self._now_s() + LINE_INTERVAL_S
            self._output.note(str(self._meter))


@contextmanager
def _bar(meter: Meter) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(20), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(str(meter), total=None)

        def on_progress(done: int, total: int | None = None) -> None:
            meter.reach(done, total)
            bar.update(task, completed=done, total=meter.total, description=str(meter))

        yield on_progress
