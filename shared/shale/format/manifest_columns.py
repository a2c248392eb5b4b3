"""Reads the SSTs and views of a large manifest by columns, with the checks of the verifier and the plain reader.

What it refuses, the plain reader, in ``shale.format.manifest``, reads again, and reports the error.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from shale._generated import schema
from shale.errors import CorruptionError
from shale.format.flat.columns import FlatColumns, offsets_of
from shale.format.flat.verifier import Verifier
from shale.format.sst.info import OFFSET_MAX, SST_VERSIONS
from shale.format.sst_references import VERSION_WHEN_ABSENT, read_range
from shale.types import Compression, FilterFormat, KeyRange, Sst, SstInfo, SstType, SstView, Ulid

LEFT_OUT = ("CompactedSsTableV2", "CompactedSsTableView")
"""The tables that are verified here."""
_U64 = np.dtype("<u8")
_U16 = np.dtype("<u2")
_U8 = np.dtype("u1")
_COMPRESSIONS, _SST_TYPES, _FILTER_FORMATS = list(Compression), list(SstType), list(FilterFormat)


def read_ssts(source: Verifier, start: int, count: int) -> dict[Ulid, Sst]:
    """Read the tables ``CompactedSsTableV2`` of one vector.

    Raises:
        CorruptionError: one is malformed, or is not an SST.
    """
    tables = FlatColumns.of_vector(source, start, count, "ManifestV2.ssts")
    ids = map(Ulid, _ids(tables.tables(0, "an id")))
    versions = tables.scalar(2, _U16, VERSION_WHEN_ABSENT)
    _require(np.isin(versions, SST_VERSIONS))
    infos = _read_infos(tables.tables(1, "an info"))
    found = zip(ids, infos, versions.tolist(), strict=True)
    return {id_: Sst(id=id_, info=info, format_version=version) for id_, info, version in found}


class ViewColumn:
    """The views of several vectors, one vector after the other."""

    def __init__(self, source: Verifier, vectors: Sequence[tuple[int, int]], ssts: Mapping[Ulid, Sst]) -> None:
        """Read ``CompactedSsTableView`` tables.

        Args:
            source: of the manifest.
            vectors: start and length of each vector.
            ssts: the SSTs that views may show.

        Raises:
            CorruptionError: one is malformed, or shows an SST that is not there.
        """
        places = np.array(vectors, np.int64).reshape(-1, 2)
        tables = FlatColumns(source, offsets_of(places[:, 0], places[:, 1]), "a vector of views")
        ranges = _read_ranges(source, tables)
        views = zip(_ids(tables.tables(0, "an id")), _ids(tables.tables(1, "an sst_id")), strict=True)
        self._views = iter([_view_of(source, *each, ssts, ranges.get(number)) for number, each in enumerate(views)])

    def take(self, count: int) -> tuple[SstView, ...]:
        """Return the next views."""
        return tuple(islice(self._views, count))


def _view_of(
    source: Verifier, view_id: int, sst_id: int, ssts: Mapping[Ulid, Sst], visible: KeyRange | None
) -> SstView:
    sst = ssts.get(sst_id)  # type: ignore[call-overload]  # equal integers
    if sst is None:
        raise source.corrupt("a view shows an SST that the manifest does not list", 0)
    # Most views have the id of their SST: both then share the object.
    view = SstView(id=sst.id if view_id == sst_id else Ulid(view_id), sst=sst, visible_range=visible)
    if visible is not None and view.effective_range.is_empty:
        raise source.corrupt("a view shows no key of its SST", 0)
    return view


def _ids(tables: FlatColumns) -> Iterator[int]:
    """Yield the ids in ``Ulid`` tables."""
    highs, lows = tables.scalar(0, _U64).tolist(), tables.scalar(1, _U64).tolist()
    return (high << 64 | low for high, low in zip(highs, lows, strict=True))


def _read_infos(tables: FlatColumns) -> Iterator[SstInfo]:
    """Yield the footers in ``SsTableInfo`` tables; see ``read_sst_info``."""
    index_offset, index_len, filter_offset, filter_len = (tables.scalar(slot, _U64) for slot in range(1, 5))
    stats_offset, stats_len = tables.scalar(8, _U64), tables.scalar(9, _U64)
    for start, length in ((index_offset, index_len), (filter_offset, filter_len), (stats_offset, stats_len)):
        _require((start <= OFFSET_MAX) & (length <= OFFSET_MAX - np.minimum(start, OFFSET_MAX)))
    _require((filter_len == 0) | (filter_offset + filter_len <= index_offset))
    kinds = []
    for slot, members in ((5, _COMPRESSIONS), (6, _SST_TYPES), (10, _FILTER_FORMATS)):
        values = tables.scalar(slot, _U8)
        _require(values < len(members))
        kinds.append(values)
    numbers = (index_offset, index_len, filter_offset, filter_len, *kinds, stats_offset, stats_len)
    keys = [tables.optional_vectors(slot, "key") for slot in (0, 7)]
    for columns in zip(*keys, *(column.tolist() for column in numbers), strict=True):
        first, last, index_at, index_size, filter_at, filter_size, codec, kind, filters, stats_at, stats_size = columns
        yield SstInfo(
            first_entry=first,
            last_entry=last,
            index_offset=index_at,
            index_len=index_size,
            filter_offset=filter_at,
            filter_len=filter_size,
            compression=_COMPRESSIONS[codec],
            sst_type=_SST_TYPES[kind],
            stats_offset=stats_at,
            stats_len=stats_size,
            filter_format=_FILTER_FORMATS[filters],
        )


def _read_ranges(source: Verifier, tables: FlatColumns) -> dict[int, KeyRange]:
    """Return the visible ranges by number of the view; few views have one."""
    ranges = {}
    for number in np.flatnonzero(tables.has(2, 4)).tolist():
        view = schema.CompactedSsTableView()
        view.Init(source.data, int(tables.positions[number]))
        # The generated reader takes no offset beyond 32 bits: it comes after the check.
        position = source.follow(view._tab.Pos + view._tab.Offset(8))
        source.verify_table(position, "BytesRange")
        table = schema.BytesRange()
        table.Init(source.data, position)
        ranges[number] = read_range(source, table)
    return ranges


def _require(valid: NDArray[np.bool_]) -> None:
    if not valid.all():
        raise CorruptionError("an SST of the manifest is malformed")
