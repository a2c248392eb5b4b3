"""One compacted SST against the manifest that names it, from its size to its last row, in bounded memory.

Only the parts between data and footer are held at once; blocks come in spans of 4 MiB.  A part that is broken does
not keep the others from being checked.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TypeVar

from shale.concurrency.read_ahead import READ_AHEAD_BYTES
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CorruptionError
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter import NO_FILTERS, Filters, decode_filters
from shale.format.sst.image_limits import filter_image_max, index_image_max, stats_image_max
from shale.format.sst.index import BlockIndex, decode_index
from shale.format.sst.info import TRAILER_SIZE, TailTooShort, decode_trailer
from shale.format.sst.stats import SstStats, decode_stats
from shale.sst.meta import SstMeta, span_end
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.sst.verify.layout import check_footer, check_layout
from shale.sst.verify.rows_check import RowsCheck, RowTotals, shown
from shale.store.port import ObjectStore
from shale.types import Sst

_TRAILER_TAIL = TRAILER_SIZE + 4
T = TypeVar("T")


class VerifyDepth(StrEnum):
    """What is read of an SST.

    ``QUICK``: everything but the blocks.  ``CHECKSUMS``: the blocks, too, whose checksums are checked.  ``DEEP``: every
    row is decoded and compared with the index, the filters and the stats.
    """

    QUICK = "quick"
    CHECKSUMS = "checksums"
    DEEP = "deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class SstVerification:
    """The findings of one SST.

    ``totals`` is of the rows that were decoded, ``blocks`` the number of blocks whose checksums were checked.
    ``is_gone``: it is missing.  ``is_undecodable``: checksums are right and nothing can be read, as if it were
    encrypted with another key.
    """

    path: str
    findings: tuple[Finding, ...]
    totals: RowTotals
    blocks: int = 0
    read_bytes: int = 0
    is_gone: bool = False
    is_undecodable: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def _ignore_bytes(size: int) -> None:
    """No-op progress callback."""


async def verify_sst(
    store: ObjectStore,
    path: str,
    sst: Sst,
    env: Env,
    *,
    transformer: BlockTransformer | None = None,
    depth: VerifyDepth = VerifyDepth.DEEP,
    on_read: Callable[[int], None] = _ignore_bytes,
) -> SstVerification:
    """Check everything about one SST that can be checked without another object.

    Of its filters only those over whole keys are checked for every row.

    Args:
        store, path: the object.
        sst: its entry in the manifest, which readers and the checks of blocks trust.
        env: runs checks in threads.
        transformer: transforms every section, as when the SST was written.
        depth: what is read.
        on_read: gets the number of bytes of each range that was checked.
    """
    meta = await store.head(path)
    if meta is None:
        return _gone(path)
    size, data_len = meta.size, sst.info.data_len
    if data_len + _TRAILER_TAIL > size:
        what = f"it has {size} bytes, the manifest knows of {data_len} of data"
        return _without_rows(path, Finding(path, what, None, Code.OBJECT_SIZE))
    tail = await store.get_range(path, data_len, size)
    if tail is None:
        return _gone(path)
    findings = await env.cpu.run(partial(_check_tail, tail, size, sst, path))
    decoded, problems = await env.cpu.run(partial(_decode_parts, tail, sst, path, transformer))
    findings += problems
    if decoded is None:
        return SstVerification(
            path=path,
            findings=tuple(findings),
            totals=RowTotals(),
            read_bytes=len(tail),
            is_undecodable=bool(problems) and all(each.code is Code.UNDECODABLE for each in problems),
        )
    on_read(len(tail))
    check = RowsCheck(sst, path, decoded, findings, transformer=transformer)
    if depth is not VerifyDepth.DEEP:
        findings += await env.cpu.run(partial(_check_index, decoded, sst, path))
    if depth is VerifyDepth.QUICK:
        return _without_rows(path, *findings, read_bytes=len(tail))
    check_span = check.check if depth is VerifyDepth.DEEP else check.check_checksums
    if not await _check_blocks(store, check, check_span, env, on_read):
        return _gone(path)
    if depth is VerifyDepth.DEEP:
        check.check_totals()
    return SstVerification(
        path=path, findings=tuple(findings), totals=check.totals, blocks=len(decoded.index), read_bytes=size
    )


def _gone(path: str) -> SstVerification:
    finding = Finding(path, "the object is gone, and a manifest still names it", None, Code.OBJECT_MISSING)
    return SstVerification(path=path, findings=(finding,), totals=RowTotals(), is_gone=True)


def _without_rows(path: str, *findings: Finding, read_bytes: int = 0) -> SstVerification:
    return SstVerification(path=path, findings=findings, totals=RowTotals(), read_bytes=read_bytes)


async def _check_blocks(
    store: ObjectStore,
    check: RowsCheck,
    check_span: Callable[[memoryview, int, int], None],
    env: Env,
    on_read: Callable[[int], None],
) -> bool:
    """Check all blocks; return false if the object was deleted meanwhile."""
    offsets = check.meta.index.offsets
    first, count = 0, len(check.meta.index)
    while first < count and not check.is_full:
        last = span_end(offsets, first, count, READ_AHEAD_BYTES)
        data = await store.get_range(check.path, int(offsets[first]), int(offsets[last]))
        if data is None:
            return False
        await env.cpu.run(partial(check_span, data, first, last))
        on_read(len(data))
        first = last
    return True


def _check_index(meta: SstMeta, sst: Sst, path: str) -> list[Finding]:
    """Check index and stats without the blocks."""
    info, index = sst.info, meta.index
    found = []

    def note(block: int, what: str) -> None:
        found.append(Finding(path, what, int(index.offsets[block]), Code.SEPARATOR))

    place = index.first_descending()
    if place is not None:
        note(place, f"the index has {shown(index.first_key(place))} after {shown(index.first_key(place - 1))}")
    if len(index) and info.first_entry is not None and index.first_key(0) > info.first_entry:
        note(0, f"the index begins with {shown(index.first_key(0))}, the SST with {shown(info.first_entry)}")
    last = len(index) - 1
    if len(index) and info.last_entry is not None and index.first_key(last) > info.last_entry:
        note(last, f"the index ends with {shown(index.first_key(last))}, the SST with {shown(info.last_entry)}")
    if meta.stats is not None and len(meta.stats.blocks) not in {0, len(index)}:
        what = f"the stats tell of {len(meta.stats.blocks)} blocks, there are {len(index)}"
        found.append(Finding(path, what, info.stats_offset, Code.STATS))
    return found


def _check_tail(tail: memoryview, size: int, sst: Sst, path: str) -> list[Finding]:
    """Check footer, trailer and layout."""
    try:
        info, version = decode_trailer(tail, object_size=size, path=path)
    except TailTooShort as error:
        what = f"the footer begins at byte {error.start}, inside the data"
        return [Finding(path, what, size - TRAILER_SIZE, Code.FOOTER_MISMATCH)]
    except CorruptionError as error:
        return [Finding.of(error, path)]
    offset = int.from_bytes(tail[-TRAILER_SIZE:-2], "big")
    return [
        *check_footer(info, version, sst, path=path, offset=offset),
        *check_layout(info, footer_offset=offset, path=path),
    ]


def _decode_parts(
    tail: memoryview,
    sst: Sst,
    path: str,
    transformer: BlockTransformer | None,
) -> tuple[SstMeta | None, list[Finding]]:
    """Decode index, filter and stats independently; ``None`` without an index, which every read needs."""
    info = sst.info
    findings: list[Finding] = []

    def section(kind: str, offset: int, length: int, image_max: int | None) -> BytesLike:
        start = offset - info.data_len
        if start < 0:
            raise CorruptionError("the manifest places it inside the data", path=path, offset=offset)
        stored = tail[start : start + length]
        return open_section(
            stored, info.compression, path, offset, transformer=transformer, image_max=image_max, kind=kind
        )

    def part(decode: Callable[[], T], otherwise: T) -> T:
        try:
            return decode()
        except CorruptionError as error:
            findings.append(Finding.of(error, path))
            return otherwise

    def index() -> BlockIndex | None:
        image = section("index", info.index_offset, info.index_len, index_image_max(counts))
        return decode_index(image, data_len=info.data_len, path=path, offset=info.index_offset)

    def filters() -> Filters:
        image = section("filter", info.filter_offset, info.filter_len, filter_image_max(counts))
        return decode_filters(image, info.filter_format, (), path=path, offset=info.filter_offset)

    def stats() -> SstStats | None:
        image = section("stats", info.stats_offset, info.stats_len, stats_image_max())
        return decode_stats(image, path=path, offset=info.stats_offset)

    counts = part(stats, None) if info.stats_len else None
    blocks = part(index, None)
    named = part(filters, NO_FILTERS) if info.filter_len else NO_FILTERS
    return (None if blocks is None else SstMeta(blocks, named, counts)), findings
