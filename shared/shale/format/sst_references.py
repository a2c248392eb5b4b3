"""SSTs and key ranges as manifests and compactions files name them (docs/reference/format.md 2.5, 4.3 and 4.4)."""

from collections.abc import Iterable

from flatbuffers import Builder

from shale._generated import schema
from shale.format.flat.accessors import Table, bytes_of, corrupt, tables_of, ulid_of
from shale.format.flat.builder import write_bytes, write_offsets, write_ulid
from shale.format.flat.verifier import Verifier
from shale.format.sst.info import SST_VERSIONS, read_sst_info, write_sst_info
from shale.types import UNBOUNDED, Bound, BoundKind, KeyRange, Sst

VERSION_WHEN_ABSENT = 1


def write_sst_v2(builder: Builder, sst: Sst) -> int:
    """Write a ``CompactedSsTableV2`` table."""
    id_ = write_ulid(builder, sst.id)
    info = write_sst_info(builder, sst.info)
    schema.CompactedSsTableV2Start(builder)
    schema.CompactedSsTableV2AddInfo(builder, info)
    schema.CompactedSsTableV2AddId(builder, id_)
    schema.CompactedSsTableV2AddFormatVersion(builder, sst.format_version)
    return schema.CompactedSsTableV2End(builder)


def write_sst_v1(builder: Builder, sst: Sst, visible_range: KeyRange | None = None) -> int:
    """Write a ``CompactedSsTable`` table."""
    id_ = write_ulid(builder, sst.id)
    info = write_sst_info(builder, sst.info)
    shown = write_range(builder, visible_range)
    schema.CompactedSsTableStart(builder)
    schema.CompactedSsTableAddVisibleRange(builder, shown)
    schema.CompactedSsTableAddInfo(builder, info)
    schema.CompactedSsTableAddId(builder, id_)
    schema.CompactedSsTableAddFormatVersion(builder, sst.format_version)
    return schema.CompactedSsTableEnd(builder)


def write_ssts(builder: Builder, ssts: Iterable[Sst]) -> int:
    """Write a vector of ``CompactedSsTable``, without visible ranges."""
    return write_offsets(builder, [write_sst_v1(builder, sst) for sst in ssts])


def read_sst(source: Verifier, table: Table) -> Sst:
    """Read a ``CompactedSsTable`` or ``CompactedSsTableV2`` table; a visible range is the caller's business.

    Raises:
        CorruptionError: an unknown format version, or a footer that is not one.
    """
    version = table.FormatVersion()
    if version is None:
        version = VERSION_WHEN_ABSENT
    if version not in SST_VERSIONS:
        raise corrupt(source, table, f"an SST has the unknown format version {version}")
    return Sst(id=ulid_of(table.Id()), info=read_sst_info(source, table.Info()), format_version=version)


def read_output_ssts(source: Verifier, table: Table) -> tuple[Sst, ...]:
    """Read the ``output_ssts`` of a compaction or a subcompaction; absent means empty."""
    return tuple(read_sst(source, sst) for sst in tables_of(table.OutputSsts, table.OutputSstsLength()))


def write_range(builder: Builder, key_range: KeyRange | None) -> int:
    """Write a ``BytesRange`` table; return 0 for ``None``."""
    if key_range is None:
        return 0
    start = _write_bound(builder, key_range.start)
    end = _write_bound(builder, key_range.end)
    schema.BytesRangeStart(builder)
    schema.BytesRangeAddEndBound(builder, end)
    schema.BytesRangeAddStartBound(builder, start)
    return schema.BytesRangeEnd(builder)


def read_range(source: Verifier, table: Table) -> KeyRange:
    """Read a ``BytesRange`` table.

    Raises:
        CorruptionError: a bound of unknown kind, an unbounded one with a key or a bounded one without, a start that
            excludes its key.
    """
    start = _read_bound(source, table.StartBound())
    end = _read_bound(source, table.EndBound())
    if start.kind is BoundKind.EXCLUDED:
        raise corrupt(source, table, "a range starts after an excluded key")
    return KeyRange(start, end)


def read_optional_range(source: Verifier, table: Table | None) -> KeyRange | None:
    """Read a ``BytesRange`` table, if there is one."""
    return None if table is None else read_range(source, table)


def _write_bound(builder: Builder, bound: Bound) -> int:
    key = write_bytes(builder, bound.key)
    schema.BytesBoundStart(builder)
    schema.BytesBoundAddKey(builder, key)
    schema.BytesBoundAddBoundType(builder, bound.kind)
    return schema.BytesBoundEnd(builder)


def _read_bound(source: Verifier, table: Table) -> Bound:
    key = bytes_of(table.KeyAsNumpy())
    kind = table.BoundType()
    if kind == BoundKind.UNBOUNDED and key is None:
        return UNBOUNDED
    if kind in (BoundKind.INCLUDED, BoundKind.EXCLUDED) and key is not None:
        return Bound(BoundKind(kind), key)
    raise corrupt(source, table, f"bound of kind {kind} {'without' if key is None else 'with'} a key")
