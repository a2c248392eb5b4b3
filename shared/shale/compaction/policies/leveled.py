"""Leveled compaction: few runs, each much larger than the next newer one; favors reads and space.

SlateDB's trees have no levels, only L0s and a list of runs, and a merge always takes whole runs.  Here a level is a
size class: level 1 has runs up to ``level_base_bytes``, each next level runs ``level_size_multiplier`` times as large.
A tree is in shape if each run is on a deeper level than the next newer one; then it has as many runs as levels.

- L0s are merged with the newest run while that run is on level 1, which costs at most one base size, and into a new
  run otherwise.  They are never merged deeper at once: only one merge of L0s runs per tree (V9), and the writer would
  stall meanwhile.
- A run that is too large for its level is merged into the next older one.  If the sum is too large for that level, too,
  the next run is included, so that a cascade writes each row once.
- With ``max_space_amplification`` all runs are merged when together they take more than that multiple of the oldest
  run: a merge of all holds its inputs and its output, so it must not come when the newer runs are as large.
- While a tree has ``max_extra_runs`` more runs than levels and merges of runs are pending, L0s wait for those.

So a tree has at most ``max_extra_runs`` more runs than levels, a row is rewritten about ``level_size_multiplier / 2``
times per level, and obsolete rows take at most about the size of the newer levels.
"""

import itertools
from collections.abc import Iterator, Sequence

from shale.compaction.policies.option_checks import positive_problems, ratio_problems, refuse, source_count_problems
from shale.compaction.policies.tree_plan import Sized, TreePlan, merge_of, propose, run_id
from shale.core.lazy_dataclass import dataclass
from shale.types import Compactions, Manifest, RunId, TieredSpec

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Leveled:
    """Options of the leveled policy.

    Args:
        min_compaction_sources: number of L0s of a tree that starts a merge.
        max_compaction_sources: most L0s, or runs, of one merge; at least 2.
        level_base_bytes: maximum size of a run on level 1; about the size of the L0s of one merge.
        level_size_multiplier: ratio of the sizes of adjacent levels; at least 2.  The default is small, because whole
            runs are merged and object stores charge for writes.
        max_extra_runs: number of runs beyond the number of levels at which L0s wait for merges of runs.
        max_space_amplification: size of all runs relative to the oldest one above which they are merged; at least 1.1;
            ``None``: no such limit.

    Raises:
        InvalidRequestError: names every option that is out of range.
    """

    min_compaction_sources: int = 4
    max_compaction_sources: int = 8
    level_base_bytes: int = 256 * _MIB
    level_size_multiplier: float = 4.0
    max_extra_runs: int = 4
    max_space_amplification: float | None = None

    def __post_init__(self) -> None:
        limit = self.max_space_amplification
        refuse(
            source_count_problems(self.min_compaction_sources, self.max_compaction_sources, least_most=2),
            positive_problems("level_base_bytes", self.level_base_bytes),
            ratio_problems("level_size_multiplier", self.level_size_multiplier, least=2),
            positive_problems("max_extra_runs", self.max_extra_runs),
            () if limit is None else ratio_problems("max_space_amplification", limit, least=1.1),
        )

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterator[TieredSpec]:
        """See ``CompactionScheduler``."""
        return propose(manifest, compactions, self._pick)

    def level_of(self, size_bytes: int) -> int:
        """Return the level of a run of this size, from 1."""
        level, limit = 1, float(self.level_base_bytes)
        while size_bytes > limit:
            level, limit = level + 1, limit * self.level_size_multiplier
        return level

    def _pick(self, tree: TreePlan, fresh: RunId) -> TieredSpec | None:
        return self._pick_l0(tree, fresh) or self._pick_runs(tree)

    def _pick_l0(self, tree: TreePlan, fresh: RunId) -> TieredSpec | None:
        if len(tree.l0) < self.min_compaction_sources or tree.l0_is_ambiguous or self._is_crowded(tree):
            return None
        chosen = tree.l0[-self.max_compaction_sources :]
        newest = tree.runs[:1]
        if newest and self.level_of(newest[0].size_bytes) == 1 and tree.is_free(newest, run_id(newest[0])):
            chosen, fresh = (*chosen, *newest), run_id(newest[0])
        return merge_of(tree, chosen, fresh) if tree.is_free(chosen, fresh) else None

    def _pick_runs(self, tree: TreePlan) -> TieredSpec | None:
        cascades = (self._cascade(tree, start) for start in range(len(tree.runs)))
        oldest = (self._free_oldest(tree),) if self._is_amplified(tree) else ()
        for chain in itertools.chain(oldest, cascades):
            chosen = chain[-self.max_compaction_sources :]
            if len(chosen) >= 2:
                return merge_of(tree, chosen, run_id(chosen[-1]))
        return None

    def _cascade(self, tree: TreePlan, start: int) -> Sequence[Sized]:
        """Return the free runs from ``start`` on that are not on a deeper level than all newer ones together."""
        total_bytes = 0
        for index in range(start, len(tree.runs)):
            candidate = tree.runs[index]
            too_deep = index > start and self.level_of(candidate.size_bytes) > self.level_of(total_bytes)
            if too_deep or not tree.is_free((candidate,), run_id(candidate)):
                return tree.runs[start:index]
            total_bytes += candidate.size_bytes
        return tree.runs[start:]

    def _is_amplified(self, tree: TreePlan) -> bool:
        """Return whether the newer runs are too large next to the oldest one."""
        if self.max_space_amplification is None or not tree.runs:
            return False
        total_bytes = sum(run.size_bytes for run in tree.runs)
        return total_bytes > self.max_space_amplification * tree.runs[-1].size_bytes

    def _free_oldest(self, tree: TreePlan) -> Sequence[Sized]:
        """Return the oldest runs, from after the oldest one that is not free."""
        taken = [index for index, run in enumerate(tree.runs) if not tree.is_free((run,), run_id(run))]
        return tree.runs[taken[-1] + 1 :] if taken else tree.runs

    def _is_crowded(self, tree: TreePlan) -> bool:
        """Return whether there are too many runs and merges of runs are possible or running."""
        levels = [self.level_of(run.size_bytes) for run in tree.runs]
        level_count = self.level_of(sum(run.size_bytes for run in tree.runs))
        is_in_shape = all(newer < older for newer, older in itertools.pairwise(levels))
        return not is_in_shape and len(levels) >= level_count + self.max_extra_runs
