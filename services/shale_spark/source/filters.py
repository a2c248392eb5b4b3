"""Filters on keys, as ranges of keys.  Pure.

Spark compares ``binary`` by unsigned bytes and ``string`` by its UTF-8 bytes, which is the order of keys.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from shale.core.lazy_dataclass import dataclass
from shale.types import EVERYTHING, UNBOUNDED, KeyRange, excluded, included
from shale_spark.source.options import SparkReadOptions

_KEY = ("key",)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys to read: those in ``key_range`` and, unless it is ``None``, in ``keys``, which ascend."""

    key_range: KeyRange = EVERYTHING
    keys: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        assert self.keys is None or all(self.key_range.contains(key) for key in self.keys)

    @property
    def is_empty(self) -> bool:
        """Whether it contains no key."""
        return self.key_range.is_empty or self.keys == ()

    @property
    def hull(self) -> KeyRange:
        """The smallest range with all of the keys."""
        if not self.keys:
            return self.key_range
        return KeyRange(included(self.keys[0]), included(self.keys[-1]))

    def within(self, key_range: KeyRange) -> "KeySet":
        """Return the keys that are in this range too."""
        both = self.key_range.intersect(key_range)
        if self.keys is None:
            return KeySet(both)
        return KeySet(both, tuple(key for key in self.keys if both.contains(key)))

    def among(self, keys: Iterable[bytes]) -> "KeySet":
        """Return the keys that are among these too."""
        wanted = {key for key in keys if key and self.key_range.contains(key)}
        if self.keys is not None:
            wanted &= frozenset(self.keys)
        return KeySet(self.key_range, tuple(sorted(wanted)))


def requested_keys(options: SparkReadOptions) -> KeySet:
    """Return the keys that the options ask for."""
    wanted = KeySet(options.key_range)
    return wanted if options.keys is None else wanted.among(options.keys)


def push_filters(filters: Sequence[Filter], wanted: KeySet, *, key_is_text: bool) -> tuple[KeySet, list[Filter]]:
    """Return the part of ``wanted`` that can satisfy the filters, and the filters that Spark still has to apply.

    Args:
        filters: all of them must hold.
        wanted: the keys that are read without them.
        key_is_text: whether the column ``key`` is a string; then a key that is not UTF-8 may be null.
    """
    left = []
    for each in filters:
        narrowed = _narrowed(each, wanted, key_is_text=key_is_text)
        if narrowed is None:
            left.append(each)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(each: Filter, wanted: KeySet, *, key_is_text: bool) -> KeySet | None:
    """Return the keys that satisfy a filter; ``None`` if the filter is not about keys."""
    if getattr(each, "attribute", None) != _KEY:
        return None
    match each:
        case IsNotNull():
            return None if key_is_text else wanted
        case EqualNullSafe(value=None):
            return None if key_is_text else wanted.among(())
        case In(value=values):
            keys = [_bytes_of(value, key_is_text=key_is_text) for value in values if value is not None]
            return None if None in keys else wanted.among(key for key in keys if key is not None)
        case EqualTo(value=value) | EqualNullSafe(value=value):
            key = _bytes_of(value, key_is_text=key_is_text)
            return None if key is None else wanted.among((key,))
        case StringStartsWith(value=value):
            key = _bytes_of(value, key_is_text=key_is_text)
            return None if key is None else wanted.within(KeyRange.with_prefix(key))
        case (
            GreaterThan(value=value)
            | GreaterThanOrEqual(value=value)
            | LessThan(value=value)
            | LessThanOrEqual(value=value)
        ):
            key = _bytes_of(value, key_is_text=key_is_text)
            return None if key is None else wanted.within(_side(each, key))
    return None


def _side(each: Filter, key: bytes) -> KeyRange:
    match each:
        case GreaterThan():
            return KeyRange(excluded(key), UNBOUNDED)
        case GreaterThanOrEqual():
            return KeyRange(included(key), UNBOUNDED)
        case LessThan():
            return KeyRange(UNBOUNDED, excluded(key))
    return KeyRange(UNBOUNDED, included(key))


def _bytes_of(value: object, *, key_is_text: bool) -> bytes | None:
    if key_is_text:
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None
    return bytes(value) if isinstance(value, bytes | bytearray) else None
