"""Compactions files: u16 version, then a FlatBuffer; no checksum (docs/format.md 5).

Version 2 is written, 1 and 2 are read.
"""

import itertools

from shale.format.buffer import Buffer
from shale.format.envelope import open_envelope, seal_envelope
from shale.format.flat_reader import FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.key_ranges import read_range, write_range
from shale.format.sst_tables import read_ssts, write_ssts
from shale.format.tables import (
    COMPACTION,
    COMPACTIONS_V1,
    DRAIN_SPEC,
    SUBCOMPACTION,
    TIERED_CONTEXT,
    TIERED_SPEC,
    WORKER_SPEC,
)
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
    WorkerClaim,
)

COMPACTIONS_VERSION = 2
_TIERED, _DRAIN = 1, 2
_TIERED_CONTEXT = 1
_WITHOUT_OUTPUT = (CompactionStatus.SUBMITTED, CompactionStatus.SCHEDULED, CompactionStatus.RUNNING)


def encode_compactions(compactions: Compactions) -> bytes:
    """The bytes that SlateDB 0.17 would write for this state.  Which finished entries to keep is the caller's rule."""
    writer = FlatWriter()
    entries = writer.references([_write_compaction(writer, entry) for entry in compactions.entries])
    root = writer.table(COMPACTIONS_V1, (compactions.compactor_epoch, entries))
    return seal_envelope(COMPACTIONS_VERSION, writer.finish(root))


def decode_compactions(data: Buffer, *, path: str | None = None) -> Compactions:
    """Read a compactions file of version 1 or 2.

    Raises:
        InvalidVersion: another version.
        CorruptionError: the bytes are not a compactions file, or contradict themselves.
    """
    version, root = open_envelope(data, what="compactions", versions=(1, COMPACTIONS_VERSION), path=path)
    entries = [_read_compaction(table, version) for table in root.required_tables(1, "recent_compactions")]
    entries.sort(key=lambda entry: entry.id)
    if any(older.id == newer.id for older, newer in itertools.pairwise(entries)):
        raise root.corrupt("two compactions have the same id")
    return Compactions(compactor_epoch=Epoch(root.u64(0)), entries=tuple(entries))


def _write_compaction(writer: FlatWriter, compaction: Compaction) -> int:
    id_ = writer.ulid(compaction.id)
    spec_type, spec = _write_spec(writer, compaction.spec)
    worker = _write_worker(writer, compaction.worker)
    ctx = _write_context(writer, compaction.ctx)
    output_ssts = write_ssts(writer, compaction.output_ssts)
    ctx_type = _TIERED_CONTEXT if ctx else 0
    return writer.table(COMPACTION, (id_, spec_type, spec, compaction.status, output_ssts, worker, ctx_type, ctx))


def _write_spec(writer: FlatWriter, spec: CompactionSpec) -> tuple[int, int]:
    l0_view_ids = writer.ulids(spec.l0_view_ids) if spec.l0_view_ids else 0
    sorted_runs = writer.u32s(spec.sorted_runs) if spec.sorted_runs else 0
    segment = writer.blob(spec.segment)
    if isinstance(spec, DrainSpec):
        return _DRAIN, writer.table(DRAIN_SPEC, (segment, l0_view_ids, sorted_runs))
    return _TIERED, writer.table(TIERED_SPEC, (0, sorted_runs, l0_view_ids, segment, spec.destination))


def _write_worker(writer: FlatWriter, worker: WorkerClaim | None) -> int:
    if worker is None:
        return 0
    return writer.table(WORKER_SPEC, (writer.string(worker.worker_id), worker.last_heartbeat_ms))


def _write_context(writer: FlatWriter, ctx: CompactionContext | None) -> int:
    if ctx is None:
        return 0
    tables = []
    for subcompaction in ctx.subcompactions:
        key_range = write_range(writer, subcompaction.range)
        output_ssts = write_ssts(writer, subcompaction.output_ssts) if subcompaction.output_ssts else 0
        tables.append(writer.table(SUBCOMPACTION, (key_range, output_ssts)))
    subcompactions = writer.references(tables) if tables else 0
    return writer.table(TIERED_CONTEXT, (subcompactions, ctx.retention_min_seq))


def _read_compaction(table: FlatTable, version: int) -> Compaction:
    status = table.kind(3, CompactionStatus, "compaction status")
    return Compaction(
        id=table.required_ulid(0, "Compaction.id"),
        spec=_read_spec(table, version),
        status=status,
        output_ssts=() if status in _WITHOUT_OUTPUT else read_ssts(table, 4),
        worker=_read_worker(table),
        ctx=_read_context(table),
    )


def _read_spec(table: FlatTable, version: int) -> CompactionSpec:
    spec_type = table.u8(1)
    spec = table.required_table(2, "Compaction.spec")
    if spec_type == _TIERED:
        return _read_tiered(spec, version)
    if spec_type == _DRAIN:
        return _read_drain(spec)
    raise table.corrupt(f"unknown kind of compaction {spec_type}")


def _read_tiered(spec: FlatTable, version: int) -> TieredSpec:
    view_ids = spec.ulids(2)
    if view_ids is None:
        view_ids = spec.ulids(0) or ()
    runs = tuple(map(RunId, spec.u32s(1) or ()))
    destination = RunId(spec.u32(4)) if version > 1 else min(runs, default=RunId(0))
    return TieredSpec(l0_view_ids=view_ids, sorted_runs=runs, destination=destination, segment=spec.blob(3) or b"")


def _read_drain(spec: FlatTable) -> DrainSpec:
    segment = spec.blob(0)
    if segment is None:
        raise spec.corrupt("a drain names no segment")
    # An empty one is a request that breaks V2 and not damage: SlateDB's tool stores it, and a coordinator fails it.
    runs = tuple(map(RunId, spec.u32s(2) or ()))
    return DrainSpec(segment=segment, l0_view_ids=spec.ulids(1) or (), sorted_runs=runs)


def _read_worker(table: FlatTable) -> WorkerClaim | None:
    worker = table.table(5)
    if worker is None or (worker_id := worker.string(0)) is None:
        return None
    return WorkerClaim(worker_id=worker_id, last_heartbeat_ms=worker.u64(1))


def _read_context(table: FlatTable) -> CompactionContext | None:
    ctx_type = table.u8(6)
    ctx = table.table(7)
    if ctx_type == 0 or ctx is None:
        return None
    if ctx_type != _TIERED_CONTEXT:
        raise table.corrupt(f"unknown kind of compaction context {ctx_type}")
    subcompactions = tuple(
        Subcompaction(
            range=read_range(subcompaction.required_table(0, "Subcompaction.range")),
            output_ssts=read_ssts(subcompaction, 1),
        )
        for subcompaction in ctx.tables(0) or ()
    )
    return CompactionContext(subcompactions=subcompactions, retention_min_seq=Seq(ctx.u64(1)))
