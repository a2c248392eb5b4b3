"""The names of ``slatedb.uniffi``; each ``…Protocol`` is an alias of its class."""

from shale.compat.slatedb.admin import Admin, AdminBuilder
from shale.compat.slatedb.builders import DbBuilder, DbReaderBuilder
from shale.compat.slatedb.caching import DbCache, FilterPolicy
from shale.compat.slatedb.callbacks import MergeOperator, MergeOperatorImpl, PrefixExtractor, PrefixExtractorImpl
from shale.compat.slatedb.clone import CloneBuilder
from shale.compat.slatedb.db import Db
from shale.compat.slatedb.errors import Error, InternalError, MergeOperatorCallbackError
from shale.compat.slatedb.logs import LogCallback, LogCallbackImpl, init_logging
from shale.compat.slatedb.metrics.recorder import (
    Counter,
    CounterImpl,
    DefaultMetricsRecorder,
    Gauge,
    GaugeImpl,
    Histogram,
    HistogramImpl,
    MetricsRecorder,
    MetricsRecorderImpl,
    UpDownCounter,
    UpDownCounterImpl,
)
from shale.compat.slatedb.reader import DbReader
from shale.compat.slatedb.reads import DbIterator
from shale.compat.slatedb.settings.settings import Settings
from shale.compat.slatedb.store import ObjectStore, ObjectStoreBuilder
from shale.compat.slatedb.transaction import DbSnapshot, DbTransaction
from shale.compat.slatedb.types.enums import (
    CacheTarget,
    CloseReason,
    CompactionSpec,
    CompactionStatus,
    CompressionCodec,
    DurabilityLevel,
    FilterContext,
    FilterFormat,
    FlushType,
    IsolationLevel,
    IterationOrder,
    LogLevel,
    MetricValue,
    ObjectStoreType,
    PrefixTarget,
    ReaderMode,
    RowEntryKind,
    SourceId,
    SstBlockSize,
    SstType,
    Ttl,
)
from shale.compat.slatedb.types.options import (
    BloomFilterOptions,
    CheckpointOptions,
    CloneSourceSpec,
    CloseOptions,
    FlushOptions,
    FoyerCacheOptions,
    GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions,
    GarbageCollectorScheduleOptions,
    MergeOptions,
    MokaCacheOptions,
    PutOptions,
    ReaderOptions,
    ReadOptions,
    ScanOptions,
    SlateDbWalReaderOptions,
    TracingOptions,
    WriteOptions,
)
from shale.compat.slatedb.types.records import (
    DbStatus,
    HistogramMetricValue,
    IdentifiedObjectMetadata,
    KeyRange,
    KeyValue,
    LogRecord,
    Metric,
    MetricLabel,
    ObjectMetadata,
    RowEntry,
    SegmentPrefix,
    WalRows,
)
from shale.compat.slatedb.types.states import (
    Checkpoint,
    CheckpointCreateResult,
    Compaction,
    CompactorStateView,
    ExternalDb,
    Segment,
    SortedRun,
    SsTableHandle,
    SsTableId,
    SsTableInfo,
    SsTableView,
    VersionedCompactions,
    VersionedManifest,
)
from shale.compat.slatedb.wal import SlateDbWalIterator, SlateDbWalReader
from shale.compat.slatedb.writes import WriteBatch, WriteHandle

AdminBuilderProtocol = AdminBuilder
AdminProtocol = Admin
CloneBuilderProtocol = CloneBuilder
DbBuilderProtocol = DbBuilder
DbCacheProtocol = DbCache
DbIteratorProtocol = DbIterator
DbProtocol = Db
DbReaderBuilderProtocol = DbReaderBuilder
DbReaderProtocol = DbReader
DbSnapshotProtocol = DbSnapshot
DbTransactionProtocol = DbTransaction
DefaultMetricsRecorderProtocol = DefaultMetricsRecorder
FilterPolicyProtocol = FilterPolicy
ObjectStoreBuilderProtocol = ObjectStoreBuilder
ObjectStoreProtocol = ObjectStore
SettingsProtocol = Settings
SlateDbWalIteratorProtocol = SlateDbWalIterator
SlateDbWalReaderProtocol = SlateDbWalReader
WriteBatchProtocol = WriteBatch
WriteHandleProtocol = WriteHandle

__all__ = [
    "Admin",
    "AdminBuilder",
    "AdminBuilderProtocol",
    "AdminProtocol",
    "BloomFilterOptions",
    "CacheTarget",
    "Checkpoint",
    "CheckpointCreateResult",
    "CheckpointOptions",
    "CloneBuilder",
    "CloneBuilderProtocol",
    "CloneSourceSpec",
    "CloseOptions",
    "CloseReason",
    "Compaction",
    "CompactionSpec",
    "CompactionStatus",
    "CompactorStateView",
    "CompressionCodec",
    "Counter",
    "CounterImpl",
    "Db",
    "DbBuilder",
    "DbBuilderProtocol",
    "DbCache",
    "DbCacheProtocol",
    "DbIterator",
    "DbIteratorProtocol",
    "DbProtocol",
    "DbReader",
    "DbReaderBuilder",
    "DbReaderBuilderProtocol",
    "DbReaderProtocol",
    "DbSnapshot",
    "DbSnapshotProtocol",
    "DbStatus",
    "DbTransaction",
    "DbTransactionProtocol",
    "DefaultMetricsRecorder",
    "DefaultMetricsRecorderProtocol",
    "DurabilityLevel",
    "Error",
    "ExternalDb",
    "FilterContext",
    "FilterFormat",
    "FilterPolicy",
    "FilterPolicyProtocol",
    "FlushOptions",
    "FlushType",
    "FoyerCacheOptions",
    "GarbageCollectorDirectoryOptions",
    "GarbageCollectorOptions",
    "GarbageCollectorScheduleOptions",
    "Gauge",
    "GaugeImpl",
    "Histogram",
    "HistogramImpl",
    "HistogramMetricValue",
    "IdentifiedObjectMetadata",
    "InternalError",
    "IsolationLevel",
    "IterationOrder",
    "KeyRange",
    "KeyValue",
    "LogCallback",
    "LogCallbackImpl",
    "LogLevel",
    "LogRecord",
    "MergeOperator",
    "MergeOperatorCallbackError",
    "MergeOperatorImpl",
    "MergeOptions",
    "Metric",
    "MetricLabel",
    "MetricValue",
    "MetricsRecorder",
    "MetricsRecorderImpl",
    "MokaCacheOptions",
    "ObjectMetadata",
    "ObjectStore",
    "ObjectStoreBuilder",
    "ObjectStoreBuilderProtocol",
    "ObjectStoreProtocol",
    "ObjectStoreType",
    "PrefixExtractor",
    "PrefixExtractorImpl",
    "PrefixTarget",
    "PutOptions",
    "ReadOptions",
    "ReaderMode",
    "ReaderOptions",
    "RowEntry",
    "RowEntryKind",
    "ScanOptions",
    "Segment",
    "SegmentPrefix",
    "Settings",
    "SettingsProtocol",
    "SlateDbWalIterator",
    "SlateDbWalIteratorProtocol",
    "SlateDbWalReader",
    "SlateDbWalReaderOptions",
    "SlateDbWalReaderProtocol",
    "SortedRun",
    "SourceId",
    "SsTableHandle",
    "SsTableId",
    "SsTableInfo",
    "SsTableView",
    "SstBlockSize",
    "SstType",
    "TracingOptions",
    "Ttl",
    "UpDownCounter",
    "UpDownCounterImpl",
    "VersionedCompactions",
    "VersionedManifest",
    "WalRows",
    "WriteBatch",
    "WriteBatchProtocol",
    "WriteHandle",
    "WriteHandleProtocol",
    "WriteOptions",
    "init_logging",
]
