"""SSTs, the views onto them, and sorted runs (docs/reference/format.md 4.3 and 12)."""

from enum import IntEnum

from shale.core.lazy_dataclass import dataclass
from shale.types.ids import RunId, Ulid
from shale.types.ranges import EVERYTHING, UNBOUNDED, KeyRange, included


class Compression(IntEnum):
    """``compression_format`` of an SST."""

    NONE = 0
    SNAPPY = 1
    ZLIB = 2
    LZ4 = 3
    ZSTD = 4


class SstType(IntEnum):
    """``sst_type`` of an SST."""

    COMPACTED = 0
    WAL = 1


class FilterFormat(IntEnum):
    """``filter_format`` of an SST."""

    LEGACY = 0
    COMPOSITE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SstInfo:
    """The footer of an SST.  Offsets and lengths are bytes from the start of the file; lengths include checksums."""

    first_entry: bytes | None = None
    last_entry: bytes | None = None
    index_offset: int = 0
    index_len: int = 0
    filter_offset: int = 0
    filter_len: int = 0
    compression: Compression = Compression.NONE
    sst_type: SstType = SstType.COMPACTED
    stats_offset: int = 0
    stats_len: int = 0
    filter_format: FilterFormat = FilterFormat.LEGACY

    @property
    def data_len(self) -> int:
        """Bytes of the data blocks: where the filter or the index begins."""
        return self.filter_offset if self.filter_len else self.index_offset

    @property
    def sections_end(self) -> int:
        """Where the last section ends; only the footer follows."""
        return max(
            self.index_offset + self.index_len,
            self.filter_offset + self.filter_len,
            self.stats_offset + self.stats_len,
        )

    @property
    def estimated_size_bytes(self) -> int:
        """The size of the file as schedulers estimate it (docs/reference/protocol.md 6.7)."""
        return self.index_offset + self.index_len

    @property
    def physical_range(self) -> KeyRange:
        """The keys from the first to the last; files of old releases do not store their last key."""
        start = UNBOUNDED if self.first_entry is None else included(self.first_entry)
        end = UNBOUNDED if self.last_entry is None else included(self.last_entry)
        return KeyRange(start, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sst:
    """A physical SST as the manifest lists it, whose ``info`` and ``format_version`` are authoritative."""

    id: Ulid
    info: SstInfo
    format_version: int = 2

    @property
    def estimated_size_bytes(self) -> int:
        """See ``SstInfo.estimated_size_bytes``."""
        return self.info.estimated_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SstView:
    """A view of a physical SST, limited to the keys in ``visible_range``."""

    id: Ulid
    sst: Sst
    visible_range: KeyRange | None = None

    @classmethod
    def identity(cls, sst: Sst) -> "SstView":
        """Return the view of a whole SST under its own id, as flushes and compactions make it."""
        return cls(id=sst.id, sst=sst)

    @property
    def effective_range(self) -> KeyRange:
        """The keys that the view can show."""
        return self.sst.info.physical_range.intersect(self.visible_range or EVERYTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRun:
    """SSTs in key order with disjoint ranges; a lower ``id`` is older data.

    Adjacent SSTs may share one key when its versions were split, and a run may be empty after a compaction that dropped
    all rows (docs/reference/protocol.md 6.10).
    """

    id: RunId
    ssts: tuple[SstView, ...]

    @property
    def estimated_size_bytes(self) -> int:
        """Sum over the views; a projection does not make it smaller."""
        return sum(view.sst.estimated_size_bytes for view in self.ssts)
