"""Progress of a command on stderr: a bar on a terminal, otherwise a line every ten seconds.

A command that is interrupted prints how far it came.  After two seconds the rate is shown, and how long it will take.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shale.env import Clock
from shale_cli.framework.output.writer import Output

LINE_INTERVAL_S = 10.0
_RATE_AFTER_S = 2.0

OnProgress = Callable[..., None]
"""``on_progress(done, total=None)``: may be called at any rate."""


class Meter:
    """The latest progress and its text.  ``now_s``: a monotonic clock."""

    def __init__(self, verb: str, unit: str, now_s: Callable[[], float]) -> None:
        self._verb = verb
        self._unit = unit
        self._now_s = now_s
        self._began: tuple[float, int] | None = None
        self.done = 0
        self.total: int | None = None

    def reach(self, done: int, total: int | None = None) -> None:
        """Update the progress; without ``total`` the earlier total stays."""
        if self._began is None:
            self._began = self._now_s(), done  # what a resumed command skips was not done at its rate
        self.done = done
        self.total = total if total is not None else self.total

    def __str__(self) -> str:
        """Return the progress as one line."""
        if not self.total:
            return f"{self._verb} {self.done:,} {self._unit}"
        return f"{self._verb} {self.done:,} of {self.total:,} {self._unit} ({self.done / self.total:.0%})"

    def line(self) -> str:
        """Return the progress with the rate and the time that is left, once they are known."""
        began_s, done_before = self._began or (self._now_s(), 0)
        seconds, done = self._now_s() - began_s, self.done - done_before
        if seconds < _RATE_AFTER_S or not done:
            return str(self)
        left = f", {_clock((self.total - self.done) * seconds / done)} left" if self.total else ""
        return f"{self}, {done / seconds:,.0f} {self._unit}/s{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def progress(output: Output, clock: Clock, verb: str, unit: str) -> Iterator[OnProgress]:
    """Show progress while the body runs, for example ``progress(…, "exported", "rows")``.

    When Ctrl-C or ``--timeout`` cancels the body, print how far it came.
    """
    meter = Meter(verb, unit, clock.monotonic_s)
    try:
        if output.quiet:
            yield meter.reach
        elif sys.stderr.isatty():
            with _bar(meter) as on_progress:
                yield on_progress
        else:
            yield ProgressLines(output, clock.monotonic_s, meter)
    except BaseException as error:
        if not isinstance(error, Exception):
            sys.stderr.write(f"shale: stopped: {meter}\n")
        raise


class ProgressLines:
    """Prints a line every ten seconds."""

    def __init__(self, output: Output, now_s: Callable[[], float], meter: Meter) -> None:
        self._output = output
        self._now_s = now_s
        self._meter = meter
        self._next_s = now_s() + LINE_INTERVAL_S

    def __call__(self, done: int, total: int | None = None) -> None:
        """Print a line if it is due."""
        self._meter.reach(done, total)
        if self._now_s() >= self._next_s:
            self._next_s = self._now_s() + LINE_INTERVAL_S
            self._output.note(self._meter.line())


@contextmanager
def _bar(meter: Meter) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(20), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(str(meter), total=None)

        def on_progress(done: int, total: int | None = None) -> None:
            meter.reach(done, total)
            bar.update(task, completed=done, total=meter.total, description=meter.line())

        yield on_progress
