"""How old the sources of a tree are, as the time-window policy sees it (see there).

Positions are those of the tree: newest first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import NamedTuple

from shale.types import Manifest, RunId, SstView, Tree

_FIRST_TIME_S = 10**9
"""The year 2001: ids below it count runs, ids from there on are seconds since 1970."""

_LAST_TIME_S = 2**32 - 2**28
"""The year 2097: a clock beyond it is broken, and must not use up the ids, which have 32 bits."""

_MS = 1000


@dataclass(frozen=True, slots=True)
class Ages:
    """Times in seconds since 1970, and windows by their number.

    Args:
        newest_window: the one that still fills.
        tick_s: what the expiry of rows is compared with; 0 if it is no time.
        l0_seconds: when each L0 was flushed.
        written_seconds: when the newest SST of each run was written; ``None`` for a run without SSTs.
    """

    window_s: float
    newest_window: int
    tick_s: int
    l0_seconds: tuple[int, ...]
    l0_windows: tuple[int, ...]
    run_windows: tuple[int, ...]
    written_seconds: tuple[int | None, ...]

    def expired_count(self, ttl_s: float) -> int:
        """How many of the oldest runs lie in windows all of whose rows have lived for ``ttl_s``."""
        expired = takewhile(lambda window: self._end_s(window) + ttl_s <= self.tick_s, reversed(self.run_windows))
        return sum(1 for _ in expired)

    def was_written_in_time(self, position: int, ttl_s: float) -> bool:
        """Whether a run was last written so early that its rewrite for age is still to come.

        Half of the lifetime keeps clocks that differ from bringing the same rewrite again and again.
        """
        written_s = self.written_seconds[position]
        return written_s is not None and written_s < self._end_s(self.run_windows[position]) + ttl_s / 2

    def _end_s(self, window: int) -> float:
        return (window + 1) * self.window_s


class Now(NamedTuple):
    """The newest time that a manifest knows of, and its clock tick (0 if it is no time), in seconds since 1970."""

    newest_s: int
    tick_s: int


def now_of(manifest: Manifest) -> Now:
    """Read what time it is for a policy."""
    tick_s = manifest.last_l0_clock_tick // _MS
    if not _FIRST_TIME_S <= tick_s <= _LAST_TIME_S:
        tick_s = 0
    newest_l0_s = max((_second(view) for _, tree in manifest.trees() for view in tree.l0), default=0)
    return Now(max(tick_s, newest_l0_s), tick_s)


def ages_of(tree: Tree, now: Now, window_s: float) -> Ages:
    """Read the times of a tree."""
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
    """The id of a run whose newest rows are of this time; ``fresh`` is the lowest that is allowed."""
    return RunId(max(fresh, second)) if second <= _LAST_TIME_S else fresh


def _run_seconds(tree: Tree, written_s: Sequence[int | None], window_s: float) -> Iterator[int]:
    """Ids that are times; runs of other policies are in windows before those, and as old as they were written.

    Before, because each merge makes such a run look new: it would follow the newest window and swallow each.
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
    """Never above a newer one: a union only concatenates, and clocks go back."""
    return tuple(accumulate(seconds, min))
