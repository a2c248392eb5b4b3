"""Time-window compaction: merge rows of the same age, so that rows that expire together are stored together.

Time is divided into windows of ``window_s``.  L0s of one window are merged into a new run.  Runs of the newest window
are merged while they are of similar size.  Once a window is over, all its runs are merged into one.  Runs of different
windows are kept apart, up to ``max_windows`` of them; older ones are merged by size.

With ``default_ttl_s``, runs whose whole window has expired are rewritten once, together, from the oldest on, which
drops the expired rows.  Each row's own expiry decides whether it is dropped (docs/reference/protocol.md 7.3).  The
option only decides when to rewrite, so a wrong value costs work and never data.

**Age of a run.**  The ULID of an L0 has its write time.  The ULIDs of a run have the time of its last merge, not of its
rows.  So the policy stores the time in the run id, which it may choose: a new run gets the second of its newest L0 as
its id, or the next free id if that is in use (V5 requires only that it is above all others).  Merges keep the lowest
id, so inside a window the time survives them.  Ids below 10**9, of other policies, are not times; such runs are as old
as their newest SST, and in windows of their own.

**Now** is the newest time in the manifest: its clock tick, if that is in milliseconds since 1970, or an L0.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from shale.compaction.policies.option_checks import positive_problems, ratio_problems, refuse, source_count_problems
from shale.compaction.policies.size_tiered import similar_count
from shale.compaction.policies.time_window_ages import Ages, ages_of, now_of, run_id_at
from shale.compaction.policies.tree_plan import Sized, TreePlan, merge_of, propose, run_id
from shale.core.lazy_dataclass import dataclass
from shale.types import Compactions, Manifest, RunId, TieredSpec

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Options of the time-window policy.

    Args:
        min_compaction_sources: number of L0s of a tree, or of similar runs of the newest window, that starts a merge.
        max_compaction_sources: most sources of one merge, and most runs of the newest window; at least 2.
        include_size_threshold: similarity of runs in the newest window, as in size-tiered; beyond ``max_windows`` the
            ratio to the next newer run from which a run is not merged; at least 2.
        window_s: length of a window in seconds; at least 60.
        max_windows: number of windows that are kept apart.
        default_ttl_s: time from write to expiry in seconds; ``None``: no run is rewritten because of its age.

    Raises:
        InvalidRequestError: names each option that is out of range or contradicts another.
    """

    min_compaction_sources: int = 4
    max_compaction_sources: int = 8
    include_size_threshold: float = 4.0
    window_s: float = _HOUR_S
    max_windows: int = 32
    default_ttl_s: float | None = None

    def __post_init__(self) -> None:
        refuse(
            source_count_problems(self.min_compaction_sources, self.max_compaction_sources, least_most=2),
            ratio_problems("include_size_threshold", self.include_size_threshold, least=2),
            ratio_problems("window", self.window_s, least=60),
            positive_problems("max_windows", self.max_windows),
            positive_problems("default_ttl", self.default_ttl_s),
            self._ttl_problems(),
        )

    def _ttl_problems(self) -> Sequence[str]:
        ttl_s = self.default_ttl_s
        if ttl_s is None or self.max_windows * self.window_s >= ttl_s + self.window_s:
            return ()
        return (
            f"max_windows {self.max_windows} of {self.window_s:g} s are merged with each other before they expire "
            f"after default_ttl {ttl_s:g} s: choose a longer window, or more of them",
        )

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterator[TieredSpec]:
        """See ``CompactionScheduler``."""
        now = now_of(manifest)
        ages: dict[bytes, Ages] = {}

        def pick(tree: TreePlan, fresh: RunId) -> TieredSpec | None:
            if tree.segment not in ages:
                ages[tree.segment] = ages_of(tree.tree, now, self.window_s)
            return self._pick(tree, ages[tree.segment], fresh)

        return propose(manifest, compactions, pick)

    def _pick(self, tree: TreePlan, ages: Ages, fresh: RunId) -> TieredSpec | None:
        groups = _groups(tree, ages)
        is_crowded = self._excess(groups, ages) >= self.max_compaction_sources
        return (
            (None if is_crowded else self._pick_l0(tree, ages, fresh))
            or self._pick_expired(tree, ages)
            or self._pick_newest(tree, ages, groups)
            or self._pick_closed(tree, ages, groups, wait_for_l0=not is_crowded)
            or self._pick_archive(tree, groups)
        )

    def _pick_l0(self, tree: TreePlan, ages: Ages, fresh: RunId) -> TieredSpec | None:
        """Merge the oldest L0s of one window, if there are enough or that window is over."""
        if not tree.l0 or tree.l0_is_ambiguous:
            return None
        window = ages.l0_windows[-1]
        count = sum(each == window for each in ages.l0_windows)
        completes = window < ages.newest_window and (count > 1 or window in ages.run_windows)
        if len(tree.l0) < self.min_compaction_sources and not completes:
            return None
        chosen = tree.l0[-min(count, self.max_compaction_sources) :]
        destination = run_id_at(ages.l0_seconds[-len(chosen)], fresh)
        return merge_of(tree, chosen, destination) if tree.is_free(chosen, destination) else None

    def _pick_expired(self, tree: TreePlan, ages: Ages) -> TieredSpec | None:
        """Rewrite the oldest runs whose windows have expired: several as one, or one that was not rewritten yet."""
        if self.default_ttl_s is None:
            return None
        count = ages.expired_count(self.default_ttl_s)
        chosen = tree.runs[len(tree.runs) - count :][-self.max_compaction_sources :]
        if not chosen or (count == 1 and not ages.was_written_in_time(len(tree.runs) - 1, self.default_ttl_s)):
            return None
        return _merge_if_free(tree, chosen)

    def _pick_newest(self, tree: TreePlan, ages: Ages, groups: Sequence["_Group"]) -> TieredSpec | None:
        """Merge similar runs of the newest window; if there are too many, merge the smallest adjacent ones."""
        if not groups or groups[0].window < ages.newest_window:
            return None
        runs, fewest = groups[0].runs, max(2, self.min_compaction_sources)
        for start in range(len(runs)):
            chain = runs[start : start + similar_count(runs, start, self.include_size_threshold)]
            if len(chain) >= fewest and (spec := _merge_if_free(tree, chain[-self.max_compaction_sources :])):
                return spec
        if sum(tree.is_free((run,), run_id(run)) for run in runs) <= self.max_compaction_sources:
            return None
        stretches = [runs[start : start + fewest] for start in range(len(runs) - fewest + 1)]
        stretches.sort(key=lambda stretch: sum(run.size_bytes for run in stretch))
        return next((spec for stretch in stretches if (spec := _merge_if_free(tree, stretch))), None)

    def _pick_closed(
        self, tree: TreePlan, ages: Ages, groups: Sequence["_Group"], *, wait_for_l0: bool
    ) -> TieredSpec | None:
        """Merge all runs of a window that is over, once it has no more L0s."""
        for group in groups:
            is_open = group.window >= ages.newest_window or (wait_for_l0 and group.window in ages.l0_windows)
            if is_open or len(group.runs) < 2:
                continue
            spec = _merge_if_free(tree, group.runs[-self.max_compaction_sources :])
            if spec is not None:
                return spec
        return None

    def _pick_archive(self, tree: TreePlan, groups: Sequence["_Group"]) -> TieredSpec | None:
        """Beyond ``max_windows``, merge runs that are not much smaller than the next older one."""
        runs = self._archive(groups)
        for start in range(len(runs) - 1):
            end, total_bytes = start + 1, runs[start].size_bytes
            while end < len(runs) and runs[end].size_bytes <= total_bytes * self.include_size_threshold:
                total_bytes += runs[end].size_bytes
                end += 1
            chain = runs[start:end][-self.max_compaction_sources :]
            if len(chain) > 1 and (spec := _merge_if_free(tree, chain)):
                return spec
        return None

    def _archive(self, groups: Sequence["_Group"]) -> list[Sized]:
        return [run for group in groups[self.max_windows :] for run in group.runs]

    def _excess(self, groups: Sequence["_Group"], ages: Ages) -> int:
        """Count the runs beyond the target number of each window, which merges are to reduce."""
        excess = 0
        for group in groups[: self.max_windows]:
            left_alone = 1 if group.window < ages.newest_window else self.max_compaction_sources
            excess += max(0, len(group.runs) - left_alone)
        archive = [run.size_bytes for run in self._archive(groups)]
        return excess + sum(older <= newer * self.include_size_threshold for newer, older in pairwise(archive))


@dataclass(frozen=True, slots=True)
class _Group:
    """The runs of one window, newest first."""

    window: int
    runs: tuple[Sized, ...]


def _groups(tree: TreePlan, ages: Ages) -> list[_Group]:
    pairs = zip(ages.run_windows, tree.runs, strict=True)
    return [_Group(window, tuple(run for _, run in same)) for window, same in groupby(pairs, key=lambda pair: pair[0])]


def _merge_if_free(tree: TreePlan, chosen: Sequence[Sized]) -> TieredSpec | None:
    destination = run_id(chosen[-1])
    return merge_of(tree, chosen, destination) if tree.is_free(chosen, destination) else None
