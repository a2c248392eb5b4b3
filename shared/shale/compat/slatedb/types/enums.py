"""The enumerations of the binding, and its variants with fields."""

from enum import Enum

from shale.compat.slatedb.types.variants import Choice, case


class FlushType(Enum):
    """How far a flush goes."""

    MEM_TABLE = 0
    WAL = 1


class CompactionStatus(Enum):
    """The status of a compaction."""

    SUBMITTED = 0
    SCHEDULED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    COMPACTED = 5


class CompressionCodec(Enum):
    """How the blocks of an SST are compressed."""

    SNAPPY = 0
    ZLIB = 1
    LZ4 = 2
    ZSTD = 3


class SstType(Enum):
    """What an SST is for."""

    COMPACTED = 0
    WAL = 1


class FilterFormat(Enum):
    """How the filters of an SST are stored."""

    LEGACY = 0
    COMPOSITE = 1


class CloseReason(Enum):
    """Why a handle is closed."""

    CLEAN = 0
    FENCED = 1
    PANIC = 2
    UNKNOWN = 3


class LogLevel(Enum):
    """The least severe level that is logged."""

    OFF = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


class DurabilityLevel(Enum):
    """The rows that reads show: only those in the store, or also those in memory."""

    REMOTE = 0
    MEMORY = 1


class RowEntryKind(Enum):
    """What a row of the WAL does."""

    VALUE = 0
    TOMBSTONE = 1
    MERGE = 2


class IterationOrder(Enum):
    """The direction of a scan."""

    ASCENDING = 0
    DESCENDING = 1


class IsolationLevel(Enum):
    """The writes with which a transaction conflicts."""

    SNAPSHOT = 0
    SERIALIZABLE_SNAPSHOT = 1


class ObjectStoreType(Enum):
    """The provider of an object store."""

    S3 = 0
    AZURE = 1
    GCS = 2
    LOCAL = 3
    IN_MEMORY = 4


class SstBlockSize(Enum):
    """The size of data blocks that are written."""

    BLOCK1_KIB = 0
    BLOCK2_KIB = 1
    BLOCK4_KIB = 2
    BLOCK8_KIB = 3
    BLOCK16_KIB = 4
    BLOCK32_KIB = 5
    BLOCK64_KIB = 6


class Ttl(Choice):
    """How long a write lives."""

    DEFAULT = case()
    NO_EXPIRY = case()
    EXPIRE_AFTER_MILLIS = case(count=1)
    EXPIRE_AT_MILLIS = case(count=1)


class CacheTarget(Choice):
    """A part of an SST that can be loaded into the cache; ``DATA`` has a ``KeyRange``."""

    FILTERS = case()
    INDEX = case()
    STATS = case()
    DATA = case("range")


class SourceId(Choice):
    """An input of a compaction: the number of a sorted run, or the ULID of an L0 view as text."""

    SORTED_RUN = case(count=1)
    SST_VIEW = case(count=1)


class CompactionSpec(Choice):
    """The job of a compaction."""

    TIERED = case("segment", "sources", "destination")
    DRAIN_SEGMENT = case("segment", "sources")


class PrefixTarget(Choice):
    """The question to a ``PrefixExtractor``: a whole key, or the prefix of a scan."""

    POINT = case("key")
    PREFIX = case("prefix")


class FilterContext(Choice):
    """Bytes for filter policies; Bloom filters do not use them."""

    BYTES = case("payload")


class MetricValue(Choice):
    """The value of a metric; that of ``HISTOGRAM`` is a ``HistogramMetricValue``."""

    COUNTER = case(count=1)
    GAUGE = case(count=1)
    UP_DOWN_COUNTER = case(count=1)
    HISTOGRAM = case(count=1)


class ReaderMode(Choice):
    """What a reader follows; ``CHECKPOINT`` has the id of the checkpoint as text."""

    MANAGED_CHECKPOINT = case()
    CHECKPOINT = case(count=1)
    FOLLOW_LATEST = case()
