"""Hypothesis strategies for manifests and compactions."""

from uuid import UUID

from hypothesis import strategies as st

from shale.types import (
    EMPTY_SEQUENCE_TRACKER,
    EVERYTHING,
    UNBOUNDED,
    Checkpoint,
    Compaction,
    CompactionContext,
    Compactions,
    CompactionStatus,
    Compression,
    DrainSpec,
    Epoch,
    ExternalDb,
    FilterFormat,
    KeyRange,
    Manifest,
    ManifestId,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Sst,
    SstInfo,
    SstType,
    SstView,
    Subcompaction,
    TieredSpec,
    Tree,
    Ulid,
    WalId,
    WorkerClaim,
    excluded,
    included,
)

U32 = st.integers(0, 2**32 - 1)
U48 = st.integers(0, 2**48)
U64 = st.integers(0, 2**64 - 1)
KEYS = st.binary(max_size=6)
ULIDS = st.integers(0, 2**128 - 1).map(Ulid)
UUIDS = st.integers(0, 2**128 - 1).map(lambda value: UUID(int=value))
TEXTS = st.text("abü/€", max_size=6)

INFOS = st.builds(
    SstInfo,
    first_entry=st.none() | KEYS,
    last_entry=st.none(),
    index_offset=U48.map(lambda value: value + 2**49),
    index_len=U48,
    filter_offset=U48,
    filter_len=U48,
    compression=st.sampled_from(Compression),
    sst_type=st.sampled_from(SstType),
    stats_offset=U48,
    stats_len=U48,
    filter_format=st.sampled_from(FilterFormat),
)
RANGES = st.builds(
    KeyRange,
    st.just(UNBOUNDED) | KEYS.map(included),
    st.just(UNBOUNDED) | st.binary(min_size=7, max_size=9).map(lambda key: included(b"\xff" + key)),
)
OUTPUTS = st.lists(st.builds(Sst, id=ULIDS, info=INFOS, format_version=st.sampled_from([1, 2])), max_size=2).map(tuple)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Return a manifest whose views show disjoint parts of SSTs of one pool."""
    pool = list({sst.id: sst for sst in draw(OUTPUTS) + draw(OUTPUTS)}.values())

    def views() -> tuple[SstView, ...]:
        if not pool:
            return ()
        ssts = draw(st.lists(st.sampled_from(pool), max_size=3))
        made = (SstView(id=draw(ULIDS), sst=sst, visible_range=draw(st.none() | RANGES)) for sst in ssts)
        return tuple(view for view in made if view.visible_range is None or not view.effective_range.is_empty)

    def tree() -> Tree:
        runs = tuple(SortedRun(id=RunId(draw(U32)), ssts=views()) for _ in range(draw(st.integers(0, 2))))
        return Tree(l0=views(), compacted=runs, last_compacted_l0_sst_view_id=draw(st.none() | ULIDS))

    prefixes = sorted(draw(st.sets(st.binary(min_size=1, max_size=3), max_size=3)))
    return Manifest(
        initialized=draw(st.booleans()),
        writer_epoch=Epoch(draw(U64)),
        compactor_epoch=Epoch(draw(U64)),
        replay_after_wal_id=WalId(draw(U64)),
        next_wal_sst_id=WalId(draw(st.integers(1, 2**64 - 1))),
        tree=tree(),
        segments=tuple(Segment(prefix=prefix, tree=tree()) for prefix in prefixes),
        segment_extractor_name=draw(st.none() | TEXTS),
        last_l0_clock_tick=draw(st.integers(-(2**63), 2**63 - 1)),
        last_l0_seq=Seq(draw(U64)),
        recent_snapshot_min_seq=Seq(draw(U64)),
        checkpoints=tuple(draw(st.lists(CHECKPOINTS, max_size=3))),
        external_dbs=tuple(draw(st.lists(EXTERNAL_DBS, max_size=2))),
        sequence_tracker=draw(st.just(EMPTY_SEQUENCE_TRACKER) | st.binary(min_size=1, max_size=20)),
    )


CHECKPOINTS = st.builds(
    Checkpoint,
    id=UUIDS,
    manifest_id=U64.map(ManifestId),
    expire_s=U32,
    create_s=U32,
    name=st.none() | TEXTS,
)
EXTERNAL_DBS = st.builds(
    ExternalDb,
    path=TEXTS,
    source_checkpoint_id=UUIDS,
    final_checkpoint_id=st.none() | UUIDS,
    sst_ids=st.lists(ULIDS, max_size=3).map(tuple),
)
TIERED = st.builds(
    TieredSpec,
    l0_view_ids=st.lists(ULIDS, max_size=3).map(tuple),
    sorted_runs=st.lists(U32.map(RunId), max_size=3).map(tuple),
    destination=U32.map(RunId),
    segment=KEYS,
)
DRAINS = st.builds(
    DrainSpec,
    segment=st.binary(min_size=1, max_size=4),
    l0_view_ids=st.lists(ULIDS, max_size=3).map(tuple),
    sorted_runs=st.lists(U32.map(RunId), max_size=3).map(tuple),
)
SUBRANGES = st.sampled_from([EVERYTHING, KeyRange(UNBOUNDED, excluded(b"k")), KeyRange(included(b"k"), UNBOUNDED)])
CONTEXTS = st.builds(
    CompactionContext,
    subcompactions=st.lists(st.builds(Subcompaction, range=SUBRANGES, output_ssts=OUTPUTS), max_size=3).map(tuple),
    retention_min_seq=U64.map(Seq),
)
CLAIMS = st.builds(WorkerClaim, worker_id=TEXTS, last_heartbeat_ms=U64)


@st.composite
def compactions(draw: st.DrawFn) -> Compactions:
    """Return a compactions file."""
    entries = []
    for id_ in sorted(draw(st.sets(ULIDS, max_size=4))):
        status = draw(st.sampled_from(CompactionStatus))
        done = status in (CompactionStatus.COMPACTED, CompactionStatus.COMPLETED, CompactionStatus.FAILED)
        entries.append(
            Compaction(
                id=id_,
                spec=draw(TIERED | DRAINS),
                status=status,
                output_ssts=draw(OUTPUTS) if done else (),
                worker=draw(st.none() | CLAIMS),
                ctx=draw(st.none() | CONTEXTS),
            )
        )
    return Compactions(compactor_epoch=Epoch(draw(U64)), entries=tuple(entries))
