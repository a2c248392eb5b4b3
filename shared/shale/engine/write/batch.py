"""A set of writes that becomes visible and durable as one (docs/reference/format.md 13)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from shale.core.async_use import BATCHED
from shale.core.bytes_like import BytesLike, not_bytes
from shale.core.state_repr import ShowsState
from shale.core.ttl import ExpireAt, Lifetime, Timestamp, Ttl, expire_ts, resolve_lifetime
from shale.core.units import format_size
from shale.engine.options import MAX_VALUE_BYTES
from shale.errors import IncompatibleMergeTtls, InvalidRequestError, MergeOperatorMissing, WrongType
from shale.iter.merge_operator import MergeOperator, fold_versions
from shale.telemetry.key_format import format_key
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry

LONG_BYTES = 1 << 29
"""Values below are compared at once; numbers above 30 bits take Python twice as long."""
NO_OPERATOR = "merge needs a merge operator: open the database with one, such as merge_operator='concatenate'"
_DELETED = FLAG_CREATE_TS | FLAG_TOMBSTONE


def checked_key(key: BytesLike, max_key_bytes: int) -> bytes:
    """Return a key as ``bytes``.

    Raises:
        InvalidRequestError: not bytes, empty, or too long.
    """
    plain = _plain_bytes(key, "key")
    if not 0 < len(plain) <= max_key_bytes:
        raise InvalidRequestError(f"key of {len(plain)} bytes: must be between 1 and {max_key_bytes}")
    return plain


def checked_value(value: BytesLike) -> bytes:
    """Return a value as ``bytes``.

    Raises:
        InvalidRequestError: not bytes, or too long.
    """
    plain = _plain_bytes(value, "value")
    if len(plain) > MAX_VALUE_BYTES:
        raise InvalidRequestError(f"value of {len(plain)} bytes: at most {MAX_VALUE_BYTES}")
    return plain


def _plain_bytes(data: object, what: str) -> bytes:
    if type(data) is bytes:
        return data
    if not isinstance(data, BytesLike):
        try:
            return bytes(memoryview(data))  # type: ignore[arg-type]
        except TypeError:
            raise not_bytes(what, data) from None
    return bytes(data)


def require_batch(batch: "WriteBatch") -> "WriteBatch":
    """Return a batch.

    Raises:
        WrongType: it is something else.
    """
    if not isinstance(batch, WriteBatch):
        raise WrongType(f"a batch was wanted, not {type(batch).__name__}: fill one, `batch = db.new_batch()`")
    return batch


class WriteBatch(ShowsState):
    """Puts, deletes and merges of one commit.

    For each key the last put or delete counts, with all merges after it.  Keys and values are checked when they are
    added; nothing is written before the commit.

    Args:
        max_key_bytes: the longest key that the batch takes.
    """

    __slots__ = ("_is_plain", "_lifetimes", "_max_key_bytes", "_operands", "_values", "has_deletes", "has_merges")

    def __init__(self, *, max_key_bytes: int = 65_535) -> None:
        self._max_key_bytes = max_key_bytes
        self._values: dict[bytes, bytes | None] = {}
        self._lifetimes: dict[bytes, Lifetime] = {}
        self._operands: dict[bytes, list[Operand]] = {}
        self._is_plain = True
        """Whether no key has its own lifetime or operands."""
        self.has_deletes = False
        self.has_merges = False
        """Whether it needs a merge operator: it has merged, even if a later put or delete replaced every operand."""

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> None:
        """Add a value; ``ttl`` or ``expire_at`` override the database's default lifetime.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime.
        """
        if (
            type(key) is bytes
            and type(value) is bytes
            and key
            and len(key) <= self._max_key_bytes
            and len(value) < LONG_BYTES
            and ttl is None
            and expire_at is None
            and self._is_plain
        ):
            self._values[key] = value
            return BATCHED  # type: ignore[no-any-return]
        key, value = checked_key(key, self._max_key_bytes), checked_value(value)
        lifetime = resolve_lifetime(ttl, expire_at, None)
        self._operands.pop(key, None)
        self._lifetimes.pop(key, None)
        if ttl is not None or expire_at is not None:
            self._lifetimes[key] = lifetime
            self._is_plain = False
        self._values[key] = value
        return BATCHED  # type: ignore[no-any-return]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Add a value for each key, with the database's default lifetime; the last value of a key counts.

        Raises:
            InvalidRequestError: an impossible key or value; some may have been added.
        """
        lengths = list(map(len, keys))
        is_plain = not self._lifetimes and not self._operands and lengths and min(lengths) > 0
        if is_plain and max(lengths) <= self._max_key_bytes and max(map(len, values)) <= MAX_VALUE_BYTES:
            self._values.update(zip(keys, values, strict=True))
            return
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def delete(self, key: BytesLike) -> None:
        """Add a deletion.

        Raises:
            InvalidRequestError: an impossible key.
        """
        key = checked_key(key, self._max_key_bytes)
        self._values[key] = None
        self._lifetimes.pop(key, None)
        self._operands.pop(key, None)
        self.has_deletes = True
        return BATCHED  # type: ignore[no-any-return]

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> None:
        """Add an operand for the merge operator, after what the batch has for the key.

        All writes of one key in a batch must have the same lifetime.

        Raises:
            InvalidRequestError: an impossible key, operand or lifetime.
        """
        key, operand = checked_key(key, self._max_key_bytes), checked_value(operand)
        is_default = ttl is None and expire_at is None
        added = Operand(operand, resolve_lifetime(ttl, expire_at, None), is_default)
        self._operands.setdefault(key, []).append(added)
        self._is_plain = False
        self.has_merges = True
        return BATCHED  # type: ignore[no-any-return]

    def extend(self, other: "WriteBatch") -> None:
        """Add all writes of another batch, after those of this one.

        Raises:
            InvalidRequestError: it has a key that this one does not take; nothing was added.
        """
        if other._max_key_bytes > self._max_key_bytes:
            for key in other:
                checked_key(key, self._max_key_bytes)
        if not self._is_plain:
            for key in other._values:
                self._operands.pop(key, None)
                self._lifetimes.pop(key, None)
        self._values.update(other._values)
        self._lifetimes.update(other._lifetimes)
        for key, operands in other._operands.items():
            self._operands.setdefault(key, []).extend(operands)
        self._is_plain = self._is_plain and other._is_plain
        self.has_deletes = self.has_deletes or other.has_deletes
        self.has_merges = self.has_merges or other.has_merges

    def clear(self) -> None:
        """Remove all writes."""
        self._values.clear()
        self._lifetimes.clear()
        self._operands.clear()
        self._is_plain = True
        self.has_deletes = self.has_merges = False

    def _shown_state(self) -> Mapping[str, object]:
        return {"keys": len(self), "size": format_size(self.size_bytes)}

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        size = sum(map(len, self._values)) + sum(len(value) for value in self._values.values() if value is not None)
        return size + sum(len(key) + len(each.value) for key, of_key in self._operands.items() for each in of_key)

    def __len__(self) -> int:
        return len(self._values) if not self._operands else len(self._values.keys() | self._operands.keys())

    def __contains__(self, key: bytes) -> bool:
        return key in self._values or key in self._operands

    def __iter__(self) -> Iterator[bytes]:
        """Yield each key once."""
        return iter(self._values if not self._operands else self._values.keys() | self._operands.keys())

    def versions(self, key: bytes, default_ttl_ms: int | None = None, now_ms: int | None = None) -> list[Entry]:
        """Return the writes of a key, newest first, as rows without sequence numbers.

        Args:
            key: the key.
            default_ttl_ms: the database's default lifetime.
            now_ms: rows expire as if they were committed then; ``None``: they have no times.
        """
        found = [
            _entry(
                (key, each.value, FLAG_MERGE), default_ttl_ms if each.has_default_lifetime else each.lifetime, now_ms
            )
            for each in reversed(self._operands.get(key, ()))
        ]
        if key in self._values:
            value = self._values[key]
            if value is None:
                found.append(Entry(key, b"", 0, FLAG_TOMBSTONE))
            else:
                found.append(_entry((key, value, 0), self._lifetimes.get(key, default_ttl_ms), now_ms))
        return found

    def commit_rows(self, default_ttl_ms: int | None, operator: MergeOperator | None = None) -> "CommitRows":
        """Return the rows that a commit appends: one per key, keys ascending.

        Args:
            default_ttl_ms: the database's default lifetime.
            operator: folds the writes of one key.

        Raises:
            MergeOperatorMissing: the batch has merged, and there is no operator.
            IncompatibleMergeTtls: a key that is merged has several lifetimes.
            MergeOperatorFailed: the operator raised an error.
        """
        if self.has_merges:
            return self._folded_rows(default_ttl_ms, operator)
        keys = sorted(self._values)
        is_in_order = keys == list(self._values)
        kept = list(self._values.values() if is_in_order else map(self._values.__getitem__, keys))
        flags = bytearray((FLAG_CREATE_TS,)) * len(keys)
        if self.has_deletes:
            flags = bytearray(_DELETED if value is None else FLAG_CREATE_TS for value in kept)
        values = [value or b"" for value in kept] if self.has_deletes else cast("list[bytes]", kept)
        lifetimes: list[tuple[int, int | ExpireAt]] = []
        if self._lifetimes or default_ttl_ms is not None:
            for place, (key, value) in enumerate(zip(keys, kept, strict=True)):
                lifetime = self._lifetimes.get(key, default_ttl_ms)
                if value is not None and lifetime is not None:
                    lifetimes.append((place, lifetime))
                    flags[place] |= FLAG_EXPIRE_TS
        return CommitRows(keys, values, flags, lifetimes)

    def _folded_rows(self, default_ttl_ms: int | None, operator: MergeOperator | None) -> "CommitRows":
        if operator is None:
            raise MergeOperatorMissing("the batch merges: open the database with a merge operator")
        rows = CommitRows(sorted(self), [], bytearray(), [])
        for place, key in enumerate(rows.keys):
            entry, lifetime = self._folded(key, default_ttl_ms, operator)
            rows.values.append(entry.value)
            rows.flags.append(entry.flags | FLAG_CREATE_TS)
            if lifetime is not None:
                rows.lifetimes.append((place, lifetime))
                rows.flags[place] |= FLAG_EXPIRE_TS
        return rows

    def _folded(self, key: bytes, default_ttl_ms: int | None, operator: MergeOperator) -> tuple[Entry, Lifetime]:
        """Return the one row of a key and its lifetime."""
        entries = self.versions(key)
        lifetimes: list[Lifetime] = [
            default_ttl_ms if each.has_default_lifetime else each.lifetime
            for each in reversed(self._operands.get(key, ()))
        ]
        if key in self._values:
            lifetimes.append(None if self._values[key] is None else self._lifetimes.get(key, default_ttl_ms))
        if any(lifetime != lifetimes[0] for lifetime in lifetimes):
            raise IncompatibleMergeTtls(f"key {format_key(key)} has several lifetimes in one batch that merges it")
        # As in SlateDB a single operand goes through the operator, too: one that it cannot fold must not be stored.
        return fold_versions(entries, operator, None)[0], lifetimes[0]


def _entry(row: tuple[bytes, bytes, int], lifetime: Lifetime, now_ms: int | None) -> Entry:
    """Return a row of a key, a value and flags."""
    key, value, flags = row
    if now_ms is None or lifetime is None:
        return Entry(key, value, 0, flags)
    return Entry(key, value, 0, flags | FLAG_EXPIRE_TS, 0, expire_ts(lifetime, now_ms))


class Operand(NamedTuple):
    """One merge of a batch."""

    value: bytes
    lifetime: Lifetime
    has_default_lifetime: bool


class CommitRows(NamedTuple):
    """Rows of one commit in columns.  ``lifetimes``: (place, lifetime) of the rows that have one."""

    keys: list[bytes]
    values: list[bytes]
    flags: bytearray
    lifetimes: list[tuple[int, int | ExpireAt]]
