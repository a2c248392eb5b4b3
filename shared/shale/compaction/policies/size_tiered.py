"""Size-tiered compaction: merge runs of similar size (docs/reference/protocol.md 6.7).

A tree with enough L0s merges its oldest ones into a new run.  Otherwise adjacent runs of similar size are merged into
the oldest of them.  A merge waits while its result would join a tier that is already full.
"""

from collections.abc import Iterator, Sequence

from shale.compaction.policies.option_checks import positive_problems, refuse, source_count_problems
from shale.compaction.policies.tree_plan import Sized, TreePlan, merge_of, propose, run_id
from shale.core.lazy_dataclass import dataclass
from shale.types import Compactions, Manifest, RunId, TieredSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTiered:
    """SlateDB's policy with SlateDB's defaults.

    Args:
        min_compaction_sources: least number of L0s, or of runs of similar size, to merge.
        max_compaction_sources: most sources of one merge; a tier with as many runs is full.
        include_size_threshold: a run is similar if it is at most this many times the smallest newer one of its tier.

    Raises:
        InvalidRequestError: names every option that is out of range.
    """

    min_compaction_sources: int = 4
    max_compaction_sources: int = 8
    include_size_threshold: float = 4.0

    def __post_init__(self) -> None:
        refuse(
            source_count_problems(self.min_compaction_sources, self.max_compaction_sources),
            positive_problems("include_size_threshold", self.include_size_threshold),
        )

    def plan(self, manifest: Manifest, compactions: Compactions) -> Iterator[TieredSpec]:
        """See ``CompactionScheduler``."""
        return propose(manifest, compactions, self._pick)

    def _pick(self, tree: TreePlan, fresh: RunId) -> TieredSpec | None:
        return self._pick_l0(tree, fresh) or self._pick_runs(tree)

    def _pick_l0(self, tree: TreePlan, fresh: RunId) -> TieredSpec | None:
        if len(tree.l0) < self.min_compaction_sources or tree.l0_is_ambiguous:
            return None
        candidates = tree.l0[-self.max_compaction_sources :]
        if not self._may_merge(tree, candidates, fresh, 0):
            return None
        return merge_of(tree, candidates, fresh)

    def _pick_runs(self, tree: TreePlan) -> TieredSpec | None:
        for start in range(len(tree.runs)):
            chain = self._checked_chain(tree, start)
            if len(chain) >= max(
                2, self.min_compaction_sources
            ):  # A run merged into itself would be merged again in each round.
                chain = chain[-self.max_compaction_sources :]
                return merge_of(tree, chain, run_id(chain[-1]))
        return None

    def _checked_chain(self, tree: TreePlan, start: int) -> Sequence[Sized]:
        """Return the longest chain of similar runs from ``start`` of which each prefix may be merged."""
        chain = tree.runs[start : start + similar_count(tree.runs, start, self.include_size_threshold)]
        for length in range(1, len(chain) + 1):
            candidates = chain[:length]
            if not self._may_merge(tree, candidates, run_id(candidates[-1]), start + length):
                return chain[: length - 1]
        return chain

    def _may_merge(self, tree: TreePlan, candidates: Sequence[Sized], destination: RunId, next_run: int) -> bool:
        """Return whether there is no conflict with other compactions and the tier of the result is not full."""
        if not tree.is_free(candidates, destination):
            return False
        if next_run >= len(tree.runs):
            return True
        result_size = sum(candidate.size_bytes for candidate in candidates)
        if tree.runs[next_run].size_bytes > int(result_size * self.include_size_threshold):
            return True
        return similar_count(tree.runs, next_run, self.include_size_threshold) < self.max_compaction_sources


def similar_count(runs: Sequence[Sized], start: int, threshold: float) -> int:
    """Count the runs from ``start`` on that are at most ``threshold`` times the smallest run before them."""
    smallest = runs[start].size_bytes
    for index in range(start + 1, len(runs)):
        size = runs[index].size_bytes
        if size > int(smallest * threshold):
            return index - start
        smallest = min(smallest, size)
    return len(runs) - start
