"""The options of ``spark.readStream.format("shale")``."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import format_value, parse_duration_ms, parse_integer
from shale.engine.location import DatabaseLocation
from shale.engine.wal.feed.feed import PART_BYTES
from shale.engine.wal.feed.offset import Edge, FeedStart, parse_start
from shale.engine.wal.feed.reading import OnGap
from shale.errors import InvalidRequestError
from shale_spark.codecs import OnDecodeError, ValueCodec, value_codec
from shale_spark.source.options import PLACE, lowercase_names, parse_bytes, parse_where, refuse_unknown

C = TypeVar("C", bound=StrEnum)

CHANGES = "changes"
"""The option that says where to begin, and that changes are meant: a batch read has other columns."""
MAX_FILES = 1000
RETAIN_FOR_MS = 24 * 3600 * 1000
_RETAIN_FOR_MS_MIN = 60_000
_KNOWN = PLACE | {
    CHANGES,
    "max_files_per_trigger",
    "retain",
    "retain_for",
    "on_gap",
    "partition_bytes",
    "value_format",
    "avro_schema",
    "mode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesOptions:
    """One stream of changes.

    Args:
        where: the database.
        start: where a query without a checkpoint of Spark's begins.
        max_files: WAL files per micro-batch; ``None``: all there are.
        retain: the name under which unread files are kept from the collector; ``None``: they are not.
        retain_for_ms: how long they are kept after the query was last seen.
        on_gap: whether a query ends whose next changes are gone, or never went through the WAL.
        partition_bytes: bytes of the WAL that one task reads.
        value_format, avro_schema, on_decode_error: as in a batch read.
    """

    where: DatabaseLocation
    start: FeedStart = Edge.LATEST
    max_files: int | None = MAX_FILES
    retain: str | None = None
    retain_for_ms: int = RETAIN_FOR_MS
    on_gap: OnGap = OnGap.FAIL
    partition_bytes: int = PART_BYTES
    value_format: str = "binary"
    avro_schema: str | None = None
    on_decode_error: OnDecodeError = OnDecodeError.FAILFAST

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ChangesOptions":
        """Parse the options of a stream reader.

        Raises:
            InvalidRequestError: an unknown option, or an invalid value; names it.
        """
        given = lowercase_names(options)
        if CHANGES not in given:
            raise InvalidRequestError(
                'a stream of changes needs option("changes", …) with its start: latest, earliest or seq:<number>'
            )
        refuse_unknown(given, _KNOWN)
        retain_for_ms = parse_duration_ms(given.get("retain_for", "24h"), name="retain_for")
        if retain_for_ms < _RETAIN_FOR_MS_MIN:
            raise InvalidRequestError("retain_for must be at least a minute")
        partition_bytes = parse_bytes(given.get("partition_bytes", str(PART_BYTES)), "partition_bytes")
        if partition_bytes < 1:
            raise InvalidRequestError("partition_bytes must be greater than 0")
        return cls(
            where=parse_where(given),
            start=parse_start(given[CHANGES]),
            max_files=_max_files(given.get("max_files_per_trigger", str(MAX_FILES))),
            retain=given.get("retain") or None,
            retain_for_ms=retain_for_ms,
            on_gap=_choice(OnGap, given.get("on_gap", OnGap.FAIL.value), "on_gap"),
            partition_bytes=partition_bytes,
            value_format=given.get("value_format", "binary"),
            avro_schema=given.get("avro_schema"),
            on_decode_error=_choice(OnDecodeError, given.get("mode", OnDecodeError.FAILFAST.value), "mode"),
        )

    def codec(self) -> ValueCodec:
        """Return the codec of the values.

        Raises:
            InvalidRequestError: there is no such format.
        """
        return value_codec(self.value_format, avro_schema=self.avro_schema)


def is_changes(options: Mapping[str, str]) -> bool:
    """Return whether these are the options of a stream of changes."""
    return CHANGES in lowercase_names(options)


def _max_files(text: str) -> int | None:
    if text.strip().lower() == "all":
        return None
    if not text.strip().isdecimal() or not text.strip().strip("0"):
        raise InvalidRequestError(f"max_files_per_trigger: {format_value(text)} is neither a number above 0 nor all")
    return parse_integer(text, name="max_files_per_trigger")


def _choice(kind: type[C], text: str, name: str) -> C:
    try:
        return kind(text.strip().lower())
    except ValueError:
        raise InvalidRequestError(f"{name}: {text!r} is none of {', '.join(kind)}") from None
