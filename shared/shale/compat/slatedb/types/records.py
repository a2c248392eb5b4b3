"""The result records of the binding: rows, states, metrics, log lines."""

from dataclasses import dataclass

from shale.compat.slatedb.types.enums import CloseReason, LogLevel, MetricValue, RowEntryKind


@dataclass(kw_only=True)
class KeyRange:
    """Keys between two bounds; a bound that is ``None`` does not limit, and its flag has no meaning."""

    start: bytes | None
    start_inclusive: bool
    end: bytes | None
    end_inclusive: bool


@dataclass(kw_only=True)
class KeyValue:
    """A visible row.  Times are milliseconds since 1970."""

    key: bytes
    value: bytes
    seq: int
    create_ts: int
    expire_ts: int | None


@dataclass(kw_only=True)
class RowEntry:
    """A row of the WAL; the value of a tombstone is ``None``."""

    kind: RowEntryKind
    key: bytes
    value: bytes | None
    seq: int
    create_ts: int | None
    expire_ts: int | None


@dataclass(kw_only=True)
class WalRows:
    """The rows of one WAL file, none for a fence."""

    rows: list[RowEntry]
    last_consumed_wal_file_id: int


@dataclass(kw_only=True)
class SegmentPrefix:
    """A segment, identified by the prefix of its keys."""

    prefix: bytes


@dataclass(kw_only=True)
class DbStatus:
    """The status of a handle; ``close_reason`` is ``None`` while it is open."""

    durable_seq: int
    close_reason: CloseReason | None
    segments: list[SegmentPrefix]


@dataclass(kw_only=True)
class ObjectMetadata:
    """The store's metadata of an object."""

    last_modified_seconds: int
    last_modified_nanos: int
    size: int
    location: str
    e_tag: str | None
    version: str | None


@dataclass(kw_only=True)
class IdentifiedObjectMetadata:
    """The metadata of an object with a number in its name."""

    id: int
    metadata: ObjectMetadata


@dataclass(kw_only=True)
class LogRecord:
    """One line of the log."""

    level: LogLevel
    target: str
    message: str
    module_path: str | None
    file: str | None
    line: int | None


@dataclass(kw_only=True)
class MetricLabel:
    """One label of a metric."""

    key: str
    value: str


@dataclass(kw_only=True)
class HistogramMetricValue:
    """The state of a histogram: ``bucket_counts`` has one more entry than ``boundaries``, for larger values."""

    count: int
    sum: float
    min: float
    max: float
    boundaries: list[float]
    bucket_counts: list[int]


@dataclass(kw_only=True)
class Metric:
    """One metric with its value."""

    name: str
    labels: list[MetricLabel]
    description: str
    value: MetricValue
