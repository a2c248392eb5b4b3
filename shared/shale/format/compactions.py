"""Compactions files: u16 version, then a FlatBuffer; no checksum (docs/reference/format.md 5).

Version 2 is written, 1 and 2 are read.
"""

import itertools
from typing import Any

from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.format.envelope import open_envelope, seal_envelope
from shale.format.flat.accessors import Table, bytes_of, corrupt, member_of, numbers_of, string_of, tables_of, ulid_of
from shale.format.flat.builder import (
    finish,
    write_bytes,
    write_offsets,
    write_string,
    write_u32s,
    write_ulid,
    write_ulids,
)
from shale.format.flat.verifier import Verifier
from shale.format.sst_references import read_output_ssts, read_range, write_range, write_ssts
from shale.types import (
    Compaction,
    CompactionContext,
    Compactions,
    CompactionSpec,
    CompactionStatus,
    DrainSpec,
    Epoch,
    RunId,
    Seq,
    Subcompaction,
    TieredSpec,
    Ulid,
    WorkerClaim,
)

COMPACTIONS_VERSION = 2
_ROOTS = {1: "CompactionsV1", COMPACTIONS_VERSION: "CompactionsV1"}
_WITHOUT_OUTPUT = (CompactionStatus.SUBMITTED, CompactionStatus.SCHEDULED, CompactionStatus.RUNNING)


def encode_compactions(compactions: Compactions) -> bytes:
    """Return the bytes that SlateDB 0.17 would write.  The caller decides which finished entries to keep."""
    builder = Builder(1024)
    entries = write_offsets(builder, [_write_compaction(builder, entry) for entry in compactions.entries])
    schema.CompactionsV1Start(builder)
    schema.CompactionsV1AddCompactorEpoch(builder, compactions.compactor_epoch)
    schema.CompactionsV1AddRecentCompactions(builder, entries)
    return seal_envelope(COMPACTIONS_VERSION, finish(builder, schema.CompactionsV1End(builder)))


def decode_compactions(data: BytesLike, *, path: str | None = None) -> Compactions:
    """Read a compactions file of version 1 or 2.

    Raises:
        InvalidVersion: another version.
        CorruptionError: the bytes are not a compactions file, or contradict themselves.
    """
    version, source = open_envelope(data, what="compactions", roots=_ROOTS, path=path)
    root = schema.CompactionsV1.GetRootAs(source.data)
    tables = tables_of(root.RecentCompactions, root.RecentCompactionsLength())
    entries = sorted((_read_compaction(source, table, version) for table in tables), key=lambda entry: entry.id)
    if any(older.id == newer.id for older, newer in itertools.pairwise(entries)):
        raise corrupt(source, root, "two compactions have the same id")
    return Compactions(compactor_epoch=Epoch(root.CompactorEpoch()), entries=tuple(entries))


def _write_compaction(builder: Builder, compaction: Compaction) -> int:
    id_ = write_ulid(builder, compaction.id)
    spec_type, spec = _write_spec(builder, compaction.spec)
    worker = _write_worker(builder, compaction.worker)
    ctx = _write_context(builder, compaction.ctx)
    output_ssts = write_ssts(builder, compaction.output_ssts)
    schema.CompactionStart(builder)
    schema.CompactionAddCtx(builder, ctx)
    schema.CompactionAddWorker(builder, worker)
    schema.CompactionAddOutputSsts(builder, output_ssts)
    schema.CompactionAddSpec(builder, spec)
    schema.CompactionAddId(builder, id_)
    schema.CompactionAddCtxType(builder, schema.CompactionContext.TieredCompactionContext if ctx else 0)
    schema.CompactionAddStatus(builder, compaction.status)
    schema.CompactionAddSpecType(builder, spec_type)
    return schema.CompactionEnd(builder)


def _write_spec(builder: Builder, spec: CompactionSpec) -> tuple[int, int]:
    """Return the type of the union and its value."""
    l0_view_ids = write_ulids(builder, spec.l0_view_ids) if spec.l0_view_ids else 0
    sorted_runs = write_u32s(builder, spec.sorted_runs) if spec.sorted_runs else 0
    segment = write_bytes(builder, spec.segment)
    if isinstance(spec, DrainSpec):
        schema.DrainSegmentSpecStart(builder)
        schema.DrainSegmentSpecAddSortedRuns(builder, sorted_runs)
        schema.DrainSegmentSpecAddL0ViewIds(builder, l0_view_ids)
        schema.DrainSegmentSpecAddSegment(builder, segment)
        return schema.CompactionSpec.DrainSegmentSpec, schema.DrainSegmentSpecEnd(builder)
    schema.TieredCompactionSpecStart(builder)
    schema.TieredCompactionSpecAddDestination(builder, spec.destination)
    schema.TieredCompactionSpecAddSegment(builder, segment)
    schema.TieredCompactionSpecAddL0ViewIds(builder, l0_view_ids)
    schema.TieredCompactionSpecAddSortedRuns(builder, sorted_runs)
    return schema.CompactionSpec.TieredCompactionSpec, schema.TieredCompactionSpecEnd(builder)


def _write_worker(builder: Builder, worker: WorkerClaim | None) -> int:
    if worker is None:
        return 0
    worker_id = write_string(builder, worker.worker_id)
    schema.WorkerSpecStart(builder)
    schema.WorkerSpecAddLastHeartbeatMs(builder, worker.last_heartbeat_ms)
    schema.WorkerSpecAddWorkerId(builder, worker_id)
    return schema.WorkerSpecEnd(builder)


def _write_context(builder: Builder, ctx: CompactionContext | None) -> int:
    if ctx is None:
        return 0
    tables = []
    for subcompaction in ctx.subcompactions:
        key_range = write_range(builder, subcompaction.range)
        output_ssts = write_ssts(builder, subcompaction.output_ssts) if subcompaction.output_ssts else 0
        schema.SubcompactionStart(builder)
        schema.SubcompactionAddOutputSsts(builder, output_ssts)
        schema.SubcompactionAddRange(builder, key_range)
        tables.append(schema.SubcompactionEnd(builder))
    subcompactions = write_offsets(builder, tables) if tables else 0
    schema.TieredCompactionContextStart(builder)
    schema.TieredCompactionContextAddRetentionMinSeq(builder, ctx.retention_min_seq)
    schema.TieredCompactionContextAddSubcompactions(builder, subcompactions)
    return schema.TieredCompactionContextEnd(builder)


def _read_compaction(source: Verifier, table: Table, version: int) -> Compaction:
    status = member_of(CompactionStatus, table.Status(), "compaction status", source, table)
    return Compaction(
        id=ulid_of(table.Id()),
        spec=_read_spec(source, table, version),
        status=status,
        output_ssts=() if status in _WITHOUT_OUTPUT else read_output_ssts(source, table),
        worker=_read_worker(table.Worker()),
        ctx=_read_context(source, table),
    )


def _read_spec(source: Verifier, table: Table, version: int) -> CompactionSpec:
    spec_type = table.SpecType()
    if spec_type == schema.CompactionSpec.TieredCompactionSpec:
        return _read_tiered(_member(schema.TieredCompactionSpec, table.Spec()), version)
    if spec_type == schema.CompactionSpec.DrainSegmentSpec:
        return _read_drain(_member(schema.DrainSegmentSpec, table.Spec()))
    raise corrupt(source, table, f"unknown kind of compaction {spec_type}")


def _member(table_class: Any, value: Table) -> Table:
    """Return the value of a union as its table; the accessor of a union returns only its position."""
    table = table_class()
    table.Init(value.Bytes, value.Pos)
    return table


def _read_tiered(spec: Table, version: int) -> TieredSpec:
    view_ids = _ulids(spec.Ssts, spec.SstsLength()) if spec.L0ViewIdsIsNone() else _view_ids(spec)
    runs = _run_ids(spec)
    return TieredSpec(
        l0_view_ids=view_ids,
        sorted_runs=runs,
        destination=RunId(spec.Destination()) if version > 1 else min(runs, default=RunId(0)),
        segment=bytes_of(spec.SegmentAsNumpy()) or b"",
    )


def _read_drain(spec: Table) -> DrainSpec:
    # An empty segment is a request that breaks V2 and not damage: SlateDB's tool stores it, and a coordinator fails it.
    segment = bytes_of(spec.SegmentAsNumpy()) or b""
    return DrainSpec(segment=segment, l0_view_ids=_view_ids(spec), sorted_runs=_run_ids(spec))


def _view_ids(spec: Table) -> tuple[Ulid, ...]:
    return _ulids(spec.L0ViewIds, spec.L0ViewIdsLength())


def _ulids(get: Any, count: int) -> tuple[Ulid, ...]:
    return tuple(map(ulid_of, tables_of(get, count)))


def _run_ids(spec: Table) -> tuple[RunId, ...]:
    return tuple(map(RunId, numbers_of(spec.SortedRunsAsNumpy())))


def _read_worker(worker: Table | None) -> WorkerClaim | None:
    worker_id = None if worker is None else string_of(worker.WorkerId())
    if worker is None or worker_id is None:
        return None
    return WorkerClaim(worker_id=worker_id, last_heartbeat_ms=worker.LastHeartbeatMs())


def _read_context(source: Verifier, table: Table) -> CompactionContext | None:
    ctx_type = table.CtxType()
    value = table.Ctx()
    if ctx_type == 0 or value is None:
        return None
    if ctx_type != schema.CompactionContext.TieredCompactionContext:
        raise corrupt(source, table, f"unknown kind of compaction context {ctx_type}")
    ctx = _member(schema.TieredCompactionContext, value)
    subcompactions = tuple(
        Subcompaction(
            range=read_range(source, subcompaction.Range()), output_ssts=read_output_ssts(source, subcompaction)
        )
        for subcompaction in tables_of(ctx.Subcompactions, ctx.SubcompactionsLength())
    )
    return CompactionContext(subcompactions=subcompactions, retention_min_seq=Seq(ctx.RetentionMinSeq()))
