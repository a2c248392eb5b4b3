"""Ages of the sources of a tree for the time-window policy, which defines them.

Positions are those in the tree, newest first.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from shale.core.lazy_dataclass import dataclass
from shale.types import Manifest, RunId, SstView, Tree

_FIRST_TIME_S = 10**9
"""The year 2001: ids below it are counters, other ids are seconds since 1970."""

_LAST_TIME_S = 2**32 - 2**28
"""The year 2097: a later clock is wrong and must not exhaust the 32-bit ids."""

_MS = 1000


@dataclass(frozen=True, slots=True)
class Ages:
    """Times in seconds since 1970, and windows by their number.

    Args:
        newest_window: the current window.
        tick_s: time that decides about expiry; 0 if the manifest's clock tick is not a time.
        l0_seconds: flush time of each L0.
        written_seconds: write time of the newest SST of each run; ``None`` for a run without SSTs.
    """

    window_s: float
    newest_window: int
    tick_s: int
    l0_seconds: tuple[int, ...]
    l0_windows: tuple[int, ...]
    run_windows: tuple[int, ...]
    written_seconds: tuple[int | None, ...]

    def expired_count(self, ttl_s: float) -> int:
        """Count the oldest runs whose whole windows are older than ``ttl_s``."""
        expired = takewhile(lambda window: self._end_s(window) + ttl_s <= self.tick_s, reversed(self.run_windows))
        return sum(1 for _ in expired)

    def was_written_in_time(self, position: int, ttl_s: float) -> bool:
        """Return whether a run was last written before its window expired, so that it was not rewritten for age yet.

        The margin of half a lifetime prevents repeated rewrites when clocks differ.
        """
        written_s = self.written_seconds[position]
        return written_s is not None and written_s < self._end_s(self.run_windows[position]) + ttl_s / 2

    def _end_s(self, window: int) -> float:
        return (window + 1) * self.window_s


class Now(NamedTuple):
    """The newest time in a manifest, and its clock tick (0 if it is not a time), in seconds since 1970."""

    newest_s: int
    tick_s: int


def now_of(manifest: Manifest) -> Now:
    """Return the current time for a policy."""
    tick_s = manifest.last_l0_clock_tick // _MS
    if not _FIRST_TIME_S <= tick_s <= _LAST_TIME_S:
        tick_s = 0
    newest_l0_s = max((_second(view) for _, tree in manifest.trees() for view in tree.l0), default=0)
    return Now(max(tick_s, newest_l0_s), tick_s)


def ages_of(tree: Tree, now: Now, window_s: float) -> Ages:
    """Return the ages of the sources of a tree."""
    written_s = tuple(max((_second(view) for view in run.ssts), default=None) for run in tree.compacted)
    l0_s = _falling(_second(view) for view in tree.l0)
    run_s = _falling(_run_seconds(tree, written_s, window_s))
    return Ages(
        window_s=window_s,
        newest_window=int(max((now.newest_s, *run_s[:1])) // window_s),
        tick_s=now.tick_s,
        l0_seconds=l0_s,
        l0_windows=tuple(int(second // window_s) for second in l0_s),
        run_windows=tuple(int(second // window_s) for second in run_s),
        written_seconds=written_s,
    )


def run_id_at(second: int, fresh: RunId) -> RunId:
    """Return the id of a run whose newest rows have this time; ``fresh`` is the lowest allowed id."""
    return RunId(max(fresh, second)) if second <= _LAST_TIME_S else fresh


def _run_seconds(tree: Tree, written_s: Sequence[int | None], window_s: float) -> Iterator[int]:
    """Yield the time of each run: its id, or for a run of another policy its write time, limited to earlier windows.

    Without the limit, each merge would move such a run to the newest window, where it would absorb new runs.
    """
    limit_s = _LAST_TIME_S
    for run, written in zip(tree.compacted, written_s, strict=True):
        if run.id >= _FIRST_TIME_S:
            limit_s = int(run.id // window_s * window_s) - 1
            yield run.id
        else:
            yield min(written or 0, limit_s)


def _second(view: SstView) -> int:
    return view.sst.id.ms // _MS


def _falling(seconds: Iterable[int]) -> tuple[int, ...]:
    """Return the running minimum: unions and clock changes may give older sources later times."""
    return tuple(accumulate(seconds, min))
