"""SSTs as manifests and compactions files name them (docs/format.md 4.3 and 4.4)."""

from collections.abc import Iterable

from shale.format.flat_reader import FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.sst_info import SST_VERSIONS, read_sst_info, write_sst_info
from shale.format.tables import COMPACTED_SST, COMPACTED_SST_V2
from shale.types import Sst

_VERSION_WHEN_ABSENT = 1


def write_sst_v2(writer: FlatWriter, sst: Sst) -> int:
    """A ``CompactedSsTableV2`` table."""
    id_ = writer.ulid(sst.id)
    info = write_sst_info(writer, sst.info)
    return writer.table(COMPACTED_SST_V2, (id_, info, sst.format_version))


def read_sst_v2(table: FlatTable) -> Sst:
    """Read a ``CompactedSsTableV2`` table."""
    return _read_sst(table, version_slot=2)


def write_ssts(writer: FlatWriter, ssts: Iterable[Sst]) -> int:
    """A vector of ``CompactedSsTable``, without visible ranges."""
    tables = []
    for sst in ssts:
        id_ = writer.ulid(sst.id)
        info = write_sst_info(writer, sst.info)
        tables.append(writer.table(COMPACTED_SST, (id_, info, 0, sst.format_version)))
    return writer.references(tables)


def read_sst(table: FlatTable) -> Sst:
    """Read a ``CompactedSsTable`` table; its visible range is the caller's."""
    return _read_sst(table, version_slot=3)


def read_ssts(table: FlatTable, slot: int) -> tuple[Sst, ...]:
    """A vector of ``CompactedSsTable``; absent means empty."""
    return tuple(read_sst(sst) for sst in table.tables(slot) or ())


def _read_sst(table: FlatTable, *, version_slot: int) -> Sst:
    version = table.nullable_u16(version_slot)
    if version is None:
        version = _VERSION_WHEN_ABSENT
    if version not in SST_VERSIONS:
        raise table.corrupt(f"an SST has the unknown format version {version}")
    return Sst(
        id=table.required_ulid(0, "CompactedSsTable.id"),
        info=read_sst_info(table.required_table(1, "CompactedSsTable.info")),
        format_version=version,
    )
