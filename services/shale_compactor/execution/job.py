"""A claimed compaction with its inputs and merge rules, as executors need it.

Source: docs/reference/protocol.md 6.9.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from shale.compaction.specs import order_of, sources_of
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError, InvalidCompaction, UnavailableError
from shale.types import Compaction, Manifest, SortedRun, Sst, SstView, TieredSpec, Ulid
from shale_compactor.execution.progress import JobProgress


class ExecutorLost(UnavailableError):
    """The remote executor is lost.  The progress has its reported outputs; it does not continue the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Inputs and rules of a job.

    Args:
        manifest: the version that was read after the claim.
        is_dest_last_run: the tree has no run older than the destination.
        clock_tick: time that decides about expiry, in milliseconds.
    """

    id: Ulid
    spec: TieredSpec
    manifest: Manifest
    l0: tuple[SstView, ...]
    runs: tuple[SortedRun, ...]
    is_dest_last_run: bool
    clock_tick: int

    @property
    def views(self) -> tuple[SstView, ...]:
        """All input views, in order of precedence."""
        return (*self.l0, *(view for run in self.runs for view in run.ssts))

    @property
    def input_bytes(self) -> int:
        """Estimated input size in bytes, as schedulers use it."""
        return sum(view.sst.estimated_size_bytes for view in self.views)


def plan_job(entry: Compaction, manifest: Manifest) -> Job:
    """Look up the sources of a claimed entry.

    Raises:
        InvalidCompaction: the spec has no sources, or the tree does not have them in this order.
    """
    spec = entry.spec
    assert isinstance(spec, TieredSpec), "drains are never claimed"
    tree = manifest.tree_of(spec.segment)
    if tree is None:
        raise InvalidCompaction("V3", f"segment {spec.segment!r} does not exist")
    wanted = frozenset(sources_of(spec))
    if not wanted:
        raise InvalidCompaction("V1", "the spec has no sources")
    if tuple(source for source in order_of(spec.segment, tree) if source in wanted) != sources_of(spec):
        raise InvalidCompaction("V4", "the tree does not have the sources in this order")
    return Job(
        id=entry.id,
        spec=spec,
        manifest=manifest,
        l0=tuple(view for view in tree.l0 if view.id in spec.l0_view_ids),
        runs=tuple(run for run in tree.compacted if run.id in spec.sorted_runs),
        is_dest_last_run=not tree.compacted or tree.compacted[-1].id == spec.destination,
        clock_tick=manifest.last_l0_clock_tick,
    )


def check_ascending(outputs: Sequence[Sst]) -> None:
    """Check that the outputs of all ranges form one sorted run.

    Raises:
        CorruptionError: an output starts before the previous one ends.
    """
    for left, right in pairwise(outputs):
        last, first = left.info.last_entry, right.info.first_entry
        if last is not None and first is not None and last > first:
            raise CorruptionError(f"output {right.id} begins before output {left.id} ends")


class JobExecutor(Protocol):
    """Executes jobs: in this process or remotely."""

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """Merge all rows that ``progress`` does not have yet; return all outputs in key order."""
        ...
