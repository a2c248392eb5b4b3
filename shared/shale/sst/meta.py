"""The metadata of one SST: filter, index and stats, which lie side by side and are read with one range read.

Their offsets come from the manifest's copy of the footer; reads never use the footer in the file.

Source: docs/reference/format.md 4.3.
"""

from collections.abc import Sequence

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.blocks.section import CRC_SIZE, open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter import NO_FILTERS, Filters, decode_filters
from shale.format.sst.filter_policy import PrefixExtractor
from shale.format.sst.image_limits import block_image_max, filter_image_max, index_image_max, stats_image_max
from shale.format.sst.index import BlockIndex, decode_index
from shale.format.sst.stats import SstStats, decode_stats
from shale.kernels.rows import I64
from shale.types import SstInfo


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SstMeta:
    """The sections needed to find a row; none of them refers to the bytes it was read from.

    ``stats`` of a reader are totals: only a check of the whole SST reads those of its blocks.
    """

    index: BlockIndex
    filters: Filters
    stats: SstStats | None

    @property
    def size_bytes(self) -> int:
        """The memory it takes."""
        blocks = 0 if self.stats is None else self.stats.blocks.nbytes
        return self.index.size_bytes + self.filters.size_bytes + blocks

    @property
    def block_image_max(self) -> int | None:
        """The most bytes that an unpacked block can have; ``None``: unknown."""
        return block_image_max(self.stats)


def meta_span(info: SstInfo, path: str, *, filters: bool = True) -> tuple[int, int]:
    """Return the bytes ``[start, end)`` of the file that hold filter, index and stats, or only the latter two.

    Raises:
        CorruptionError: a section in the manifest is too short for its checksum.
    """
    sections = [(info.index_offset, info.index_len)]
    if filters and info.filter_len:
        sections.append((info.filter_offset, info.filter_len))
    if info.stats_len:
        sections.append((info.stats_offset, info.stats_len))
    for offset, length in sections:
        if length < CRC_SIZE:
            raise CorruptionError(f"a section of {length} bytes has no checksum", path=path, offset=offset)
    return min(offset for offset, _ in sections), max(offset + length for offset, length in sections)


def decode_meta(
    info: SstInfo,
    data: BytesLike,
    start: int,
    *,
    filters: bool = True,
    extractors: Sequence[PrefixExtractor] = (),
    transformer: BlockTransformer | None = None,
    path: str,
) -> SstMeta:
    """Decode the sections in ``data``, which begins at byte ``start`` of the file; without ``filters`` all keys pass.

    Raises:
        CorruptionError: a checksum fails, a section is malformed or the separators descend; the error has the
            section's offset in the file.
    """
    view = memoryview(data)

    def section(kind: str, offset: int, length: int, image_max: int | None) -> BytesLike:
        stored = view[offset - start : offset - start + length]
        return open_section(
            stored, info.compression, path, offset, transformer=transformer, image_max=image_max, kind=kind
        )

    stats = None
    if info.stats_len:
        image = section("stats", info.stats_offset, info.stats_len, stats_image_max())
        stats = decode_stats(image, path=path, offset=info.stats_offset)
    image = section("index", info.index_offset, info.index_len, index_image_max(stats))
    index = decode_index(image, data_len=info.data_len, path=path, offset=info.index_offset)
    _require_order(index, info, path)
    decoded_filters = NO_FILTERS
    if filters and info.filter_len:
        # Filters share the memory of their image: a copy, so that they do not keep all bytes read.
        bits = bytes(section("filter", info.filter_offset, info.filter_len, filter_image_max(stats)))
        decoded_filters = decode_filters(bits, info.filter_format, extractors, path=path, offset=info.filter_offset)
    if stats is not None:
        stats = stats.totals()
    return SstMeta(index, decoded_filters, stats)


def _require_order(index: BlockIndex, info: SstInfo, path: str) -> None:
    """Refuse separators that descend: a search among them would leave rows out."""
    block = index.first_descending()
    if block is not None:
        what = f"the index has a lower key for block {block} than for the block before"
        raise CorruptionError(what, path=path, offset=info.index_offset)


def span_end(offsets: I64, first: int, last: int, size_bytes: int) -> int:
    """Return the end of a read from block ``first``: after the block that fills ``size_bytes``, at most ``last``.

    Rounding up keeps a scan at one read per ``size_bytes`` of data.
    """
    target = int(offsets[first]) + size_bytes
    end = int(offsets[first : last + 1].searchsorted(target, side="left")) + first
    return min(max(end, first + 1), last)


def span_begin(offsets: I64, first: int, last: int, size_bytes: int) -> int:
    """Return the begin of a read that ends before block ``last``; the reverse of ``span_end``."""
    target = int(offsets[last]) - size_bytes
    begin = int(offsets[first : last + 1].searchsorted(target, side="right")) + first - 1
    return max(min(begin, last - 1), first)
