"""The simulated database: a real manifest and real compactions; SSTs have sizes and simulated rows."""

from dataclasses import replace
from itertools import islice

from shale.compaction.apply import with_run
from shale.compaction.entries import finished, with_entries, with_entry
from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.simulate.rows import RowSet, merged
from shale.compaction.simulate.workload import Workload
from shale.compaction.specs import source_views
from shale.compaction.validation import ValidationStage, validate
from shale.errors import InvalidCompaction
from shale.types import (
    Compaction,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    Manifest,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
)

START_MS = 1_700_000_000_000
"""Start of simulated time, so that ids look like those of a real database."""


class SimulatedDatabase:
    """One tree and its jobs; each step applies the coordinator's rules."""

    def __init__(self, load: Workload, initial: RowSet) -> None:
        self._load = load
        self._ids = 0
        self._rows: dict[Ulid, RowSet] = {}
        self._tick_s = 0.0
        self.manifest = Manifest(last_l0_clock_tick=START_MS)
        self.compactions = Compactions()
        if initial.count:
            run = SortedRun(id=RunId(0), ssts=(self._view(initial, 0.0),))
            self.manifest = replace(self.manifest, tree=Tree(compacted=(run,)))

    @property
    def tree(self) -> Tree:
        """The only tree."""
        return self.manifest.tree

    @property
    def stored_bytes(self) -> int:
        """Estimated size of all SSTs in the manifest."""
        return sum(view.sst.estimated_size_bytes for view in self.tree.views())

    @property
    def active(self) -> int:
        """Number of running jobs."""
        return sum(entry.is_active for entry in self.compactions.entries)

    def flush(self, rows: RowSet, now_s: float) -> int:
        """Add an L0; return its size in bytes."""
        view = self._view(rows, now_s)
        self._tick_s = now_s
        self.manifest = replace(
            self.manifest,
            tree=replace(self.tree, l0=(view, *self.tree.l0)),
            last_l0_clock_tick=START_MS + int(now_s * 1000),
        )
        return view.sst.estimated_size_bytes

    def schedule(self, policy: CompactionScheduler, jobs: int, now_s: float) -> list[Compaction]:
        """Start jobs that the policy proposes, up to the capacity."""
        started: list[Compaction] = []
        room = max(0, jobs - self.active)
        for spec in islice(policy.plan(self.manifest, self.compactions), room):
            entry = self._try_start(spec, now_s)
            if entry is not None:
                started.append(entry)
        return started

    def output_of(self, entry: Compaction) -> RowSet:
        """Return the merged rows of the sources at the current clock tick."""
        assert isinstance(entry.spec, TieredSpec), "policies propose merges only"
        runs = self.tree.compacted
        return merged(
            [self._rows[view.sst.id] for view in source_views(self.tree, entry.spec)],
            tick_s=self._tick_s,
            drop_tombstones=not runs or runs[-1].id == entry.spec.destination,
        )

    def input_bytes(self, entry: Compaction) -> list[int]:
        """Return the sizes of the sources in bytes."""
        return [view.sst.estimated_size_bytes for view in source_views(self.tree, entry.spec)]

    def commit(self, entry: Compaction, output: RowSet, now_s: float) -> int:
        """Replace the sources by the result; return its size in bytes."""
        assert isinstance(entry.spec, TieredSpec), "policies propose merges only"
        validate(self.manifest, self.compactions, entry, ValidationStage.COMPACTED)
        gone = [view.sst.id for view in source_views(self.tree, entry.spec)]
        views = (self._view(output, now_s),) if output.count else ()
        self.manifest = with_run(self.manifest, entry.spec, views)
        for sst_id in gone:
            del self._rows[sst_id]
        active = [other for other in self.compactions.entries if other.is_active and other.id != entry.id]
        self.compactions = with_entries(Compactions(), [*active, finished(entry, CompactionStatus.COMPLETED)])
        return sum(view.sst.estimated_size_bytes for view in views)

    def _try_start(self, spec: CompactionSpec, now_s: float) -> Compaction | None:
        entry = Compaction(id=self._ulid(now_s), spec=spec)
        try:
            validate(self.manifest, with_entry(self.compactions, entry), entry, ValidationStage.SUBMITTED)
        except InvalidCompaction:
            return None
        entry = replace(entry, status=CompactionStatus.RUNNING)
        self.compactions = with_entry(self.compactions, entry)
        return entry

    def _view(self, rows: RowSet, now_s: float) -> SstView:
        load = self._load
        tombstones = rows.tombstone_count
        size = load.scale * ((rows.count - tombstones) * load.row_bytes + tombstones * load.tombstone_bytes)
        info = SstInfo(first_entry=b"\x00", last_entry=b"\xff", index_offset=round(size))
        sst = Sst(id=self._ulid(now_s), info=info)
        self._rows[sst.id] = rows
        return SstView.identity(sst)

    def _ulid(self, now_s: float) -> Ulid:
        self._ids += 1
        return Ulid.from_parts(START_MS + int(now_s * 1000), self._ids)
