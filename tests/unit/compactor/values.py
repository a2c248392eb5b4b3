"""Short builders for manifests and compactions; ids are small numbers that serve as times."""

from shale.types import (
    Compaction,
    Compactions,
    CompactionStatus,
    DrainSpec,
    KeyRange,
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
    WorkerClaim,
)

S = CompactionStatus


def ulid(ms: int, chance: int = 0) -> Ulid:
    return Ulid.from_parts(ms, chance)


def sst(ms: int, size: int = 100, keys: tuple[bytes, bytes] = (b"a", b"z")) -> Sst:
    info = SstInfo(first_entry=keys[0], last_entry=keys[1], index_offset=size, index_len=0)
    return Sst(id=ulid(ms), info=info)


def view(
    ms: int, size: int = 100, keys: tuple[bytes, bytes] = (b"a", b"z"), visible: KeyRange | None = None
) -> SstView:
    return SstView(id=ulid(ms), sst=sst(ms, size, keys), visible_range=visible)


def run(run_id: int, size: int = 100, ms: int | None = None) -> SortedRun:
    return SortedRun(id=RunId(run_id), ssts=(view(1000 + run_id if ms is None else ms, size),))


def tree(l0: tuple[int, ...] = (), runs: tuple[int, ...] = (), sizes: tuple[int, ...] = ()) -> Tree:
    """Return L0 views by their milliseconds, newest first; runs by id, with optional sizes."""
    sizes = sizes or (100,) * len(runs)
    return Tree(
        l0=tuple(view(ms) for ms in l0),
        compacted=tuple(run(run_id, size) for run_id, size in zip(runs, sizes, strict=True)),
    )


def manifest(root: Tree | None = None, **segments: Tree) -> Manifest:
    return Manifest(
        tree=root or Tree(),
        segments=tuple(Segment(prefix=name.encode(), tree=segments[name]) for name in sorted(segments)),
    )


def spec(l0: tuple[int, ...] = (), runs: tuple[int, ...] = (), to: int = 0, segment: bytes = b"") -> TieredSpec:
    return TieredSpec(
        l0_view_ids=tuple(ulid(ms) for ms in l0),
        sorted_runs=tuple(RunId(i) for i in runs),
        destination=RunId(to),
        segment=segment,
    )


def drain(segment: bytes, l0: tuple[int, ...] = (), runs: tuple[int, ...] = ()) -> DrainSpec:
    return DrainSpec(
        segment=segment, l0_view_ids=tuple(ulid(ms) for ms in l0), sorted_runs=tuple(RunId(i) for i in runs)
    )


def entry(
    ms: int, what: TieredSpec | DrainSpec, status: CompactionStatus = S.SUBMITTED, **fields: object
) -> Compaction:
    if status is S.RUNNING and "worker" not in fields:
        fields["worker"] = WorkerClaim(worker_id="w", last_heartbeat_ms=0)
    return Compaction(id=ulid(ms), spec=what, status=status, **fields)  # type: ignore[arg-type]


def compactions(*entries: Compaction) -> Compactions:
    return Compactions(entries=tuple(sorted(entries, key=lambda entry: entry.id)))


def statuses(value: Compactions) -> dict[int, CompactionStatus]:
    return {entry.id.ms: entry.status for entry in value.entries}
