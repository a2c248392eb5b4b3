"""Random trees, and a database that flushes and compacts in one step, for properties of policies."""

from dataclasses import dataclass, field, replace
from itertools import islice

from hypothesis import strategies as st

from shale.compaction.apply import with_run
from shale.compaction.entries import finished, with_entries, with_entry
from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.policies.time_window import TimeWindow
from shale.compaction.specs import next_run_id, size_estimate_bytes
from shale.compaction.validation import ValidationStage, check_proposal, validate
from shale.types import (
    Compaction,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    Manifest,
    RunId,
    Segment,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
)

START_S = 1_700_000_000
SIZES = st.sampled_from((0, 1, 90, 100, 110, 400, 500, 3_000, 10_000, 60_000, 10**9))


def view_at(second: int, size: int, chance: int = 0) -> SstView:
    """Return a view of an SST that was written at this time."""
    info = SstInfo(first_entry=b"a", last_entry=b"z", index_offset=size)
    return SstView.identity(Sst(id=Ulid.from_parts(second * 1000, chance), info=info))


def leveled_policies() -> st.SearchStrategy[Leveled]:
    return st.builds(
        Leveled,
        min_compaction_sources=st.integers(1, 4),
        max_compaction_sources=st.integers(4, 8),
        level_base_bytes=st.sampled_from((1, 100, 1_000)),
        level_size_multiplier=st.sampled_from((2.0, 4.0, 10.0)),
        max_extra_runs=st.integers(1, 4),
        max_space_amplification=st.sampled_from((None, 1.1, 1.5, 3.0)),
    )


def time_window_policies() -> st.SearchStrategy[TimeWindow]:
    return st.builds(
        TimeWindow,
        min_compaction_sources=st.integers(1, 4),
        max_compaction_sources=st.integers(4, 8),
        include_size_threshold=st.sampled_from((2.0, 4.0)),
        window_s=st.sampled_from((60.0, 600.0)),
        max_windows=st.integers(6, 9),
        default_ttl_s=st.sampled_from((None, 60.0, 300.0)),
    )


def size_tiered_policies() -> st.SearchStrategy[SizeTiered]:
    return st.builds(
        SizeTiered,
        min_compaction_sources=st.integers(1, 4),
        max_compaction_sources=st.integers(4, 8),
        include_size_threshold=st.sampled_from((0.5, 1.0, 4.0)),
    )


def policies() -> st.SearchStrategy[CompactionScheduler]:
    return st.one_of(size_tiered_policies(), leveled_policies(), time_window_policies())


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Return up to three trees with L0s and runs of any size and age; run ids are counts, seconds, or both."""
    base = draw(st.sampled_from((0, START_S - 50)))
    free_ids = draw(st.permutations(range(base, base + 24)))
    low_ids = draw(st.permutations(range(24)))
    trees: list[Tree] = []
    for index in range(3):
        count, low_count = draw(st.integers(0, 7)), draw(st.integers(0, 1 if base == 0 else 4))
        ids = {*free_ids[index * 8 : index * 8 + count]}
        if base:
            ids |= {*low_ids[index * 8 : index * 8 + low_count]}
        ages = sorted(draw(st.lists(st.integers(0, 900), max_size=10, unique=True)))
        trees.append(
            Tree(
                l0=tuple(view_at(START_S + 900 - age, draw(SIZES), index) for age in ages),
                compacted=tuple(_run(draw, id_, index) for id_ in sorted(ids, reverse=True)),
            )
        )
    tick_s = draw(st.sampled_from((0, START_S + 100, START_S + 1_000, START_S + 2_000)))
    segments = (Segment(prefix=b"a", tree=trees[1]), Segment(prefix=b"b", tree=trees[2]))
    return Manifest(tree=trees[0], segments=segments, last_l0_clock_tick=tick_s * 1000)


def _run(draw: st.DrawFn, run_id: int, chance: int) -> SortedRun:
    written_s = START_S + draw(st.integers(-500, 900))
    ssts = (view_at(written_s, draw(SIZES), 1000 * run_id + chance),) if draw(st.integers(0, 9)) else ()
    return SortedRun(id=RunId(run_id), ssts=ssts)


@dataclass
class Database:
    """A manifest with its jobs, changed as the coordinator changes them; time is in seconds."""

    policy: CompactionScheduler
    manifest: Manifest
    now_s: int = START_S + 2_000
    compactions: Compactions = field(default_factory=Compactions)
    count: int = 0

    def submit(self, capacity: int) -> list[Compaction]:
        """Accept proposals up to the capacity; each must be valid beside all others."""
        active = len(self.active)
        picked = list(islice(self.policy.plan(self.manifest, self.compactions), max(0, capacity - active)))
        return [self._accept(spec) for spec in picked]

    def try_accept(self, spec: CompactionSpec) -> None:
        """Activate a request of another client if it is valid."""
        self._accept(spec)

    def _accept(self, spec: CompactionSpec) -> Compaction:
        check_proposal(self.compactions, spec)
        entry = Compaction(id=self._ulid(), spec=spec)
        validate(self.manifest, with_entry(self.compactions, entry), entry, ValidationStage.SUBMITTED)
        entry = replace(entry, status=CompactionStatus.SCHEDULED)
        self.compactions = with_entry(self.compactions, entry)
        return entry

    @property
    def active(self) -> list[Compaction]:
        return [entry for entry in self.compactions.entries if entry.is_active]

    def finish(self, entry: Compaction, kept: float = 1.0) -> None:
        """Commit a job that keeps a share of its rows."""
        assert isinstance(entry.spec, TieredSpec)
        validate(self.manifest, self.compactions, entry, ValidationStage.COMPACTED)
        size = int(size_estimate_bytes(self.manifest, entry.spec) * kept)
        self.count += 1
        views = (view_at(self.now_s, size, self.count),) if size else ()
        self.manifest = with_run(self.manifest, entry.spec, views)
        done = finished(entry, CompactionStatus.COMPLETED)
        self.compactions = with_entries(Compactions(), [*self.active_but(entry), done])

    def active_but(self, entry: Compaction) -> list[Compaction]:
        return [other for other in self.active if other.id != entry.id]

    def flush(self, size: int) -> None:
        """Add a new L0 to the root tree."""
        self.count += 1
        tree = self.manifest.tree
        l0 = (view_at(self.now_s, size, self.count), *tree.l0)
        self.manifest = replace(self.manifest, tree=replace(tree, l0=l0), last_l0_clock_tick=self.now_s * 1000)

    @property
    def run_count(self) -> int:
        return len(self.manifest.tree.compacted)

    @property
    def next_run(self) -> int:
        return next_run_id(self.manifest)

    def _ulid(self) -> Ulid:
        self.count += 1
        return Ulid.from_parts(self.now_s * 1000, self.count)
