"""The parts of an SST lie back to back: data, filter, index, stats, footer (docs/reference/format.md 6).

A byte that belongs to no part is covered by no checksum.
"""

from collections.abc import Iterator

from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.types import FilterFormat, Sst, SstInfo, SstType


def check_layout(info: SstInfo, *, footer_offset: int, path: str) -> Iterator[Finding]:
    """Yield gaps between the parts that a footer names, up to the footer."""
    at = info.data_len
    parts = [("the filter", info.filter_offset, info.filter_len)] if info.filter_len else []
    parts.append(("the index", info.index_offset, info.index_len))
    if info.stats_len:
        parts.append(("the stats", info.stats_offset, info.stats_len))
    for name, offset, length in parts:
        if offset != at:
            yield Finding(path, f"{name} begins at byte {offset}, what comes before ends at {at}", at, Code.LAYOUT_GAP)
        at = offset + length
    if at != footer_offset:
        yield Finding(
            path, f"the footer begins at byte {footer_offset}, what comes before ends at {at}", at, Code.LAYOUT_GAP
        )


def check_footer(info: SstInfo, version: int, sst: Sst, *, path: str, offset: int) -> Iterator[Finding]:
    """Yield differences between the footer of an SST and the manifest."""
    if version != sst.format_version:
        what = f"it is of format version {version}, the manifest says {sst.format_version}"
        yield Finding(path, what, offset, Code.FOOTER_MISMATCH)
    if info.sst_type is not SstType.COMPACTED:
        yield Finding(path, "its footer calls it a WAL file", offset, Code.FOOTER_MISMATCH)
    for name in SstInfo.__dataclass_fields__:
        stored, known = getattr(info, name), getattr(sst.info, name)
        if stored != known and not _is_moot(name, info):
            what = f"its footer has {name} {stored!r}, the manifest {known!r}"
            yield Finding(path, what, offset, Code.FOOTER_MISMATCH)


def _is_moot(name: str, info: SstInfo) -> bool:
    """Return whether a field does not matter: the filter format of an SST without a filter."""
    return name == "filter_format" and not info.filter_len and info.filter_format in FilterFormat
