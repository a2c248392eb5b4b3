"""A set of writes that becomes visible and durable as one (docs/format.md 13)."""

from typing import NamedTuple, TypeAlias, cast

from shale.engine.options import MAX_VALUE_BYTES, ttl_ms
from shale.engine.settings_values import Duration
from shale.errors import InvalidRequestError
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_TOMBSTONE

BytesLike: TypeAlias = bytes | bytearray | memoryview

_DELETED = FLAG_CREATE_TS | FLAG_TOMBSTONE


def checked_key(key: BytesLike, max_key_bytes: int) -> bytes:
    """A key as ``bytes``.

    Raises:
        InvalidRequestError: not bytes, empty, or too long.
    """
    plain = _plain_bytes(key, "key")
    if not 0 < len(plain) <= max_key_bytes:
        raise InvalidRequestError(f"key of {len(plain)} bytes: must be between 1 and {max_key_bytes}")
    return plain


def checked_value(value: BytesLike) -> bytes:
    """A value as ``bytes``.

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
    if not isinstance(data, bytes | bytearray | memoryview):
        try:
            return bytes(memoryview(data))  # type: ignore[arg-type]
        except TypeError:
            raise InvalidRequestError(f"{what} must be bytes-like, not {type(data).__name__}") from None
    return bytes(data)


class WriteBatch:
    """Puts and deletes in one commit; of several for one key the last counts.

    Keys and values are checked when they are added, against ``max_key_bytes``; nothing is written before the commit.
    """

    __slots__ = ("_lifetimes", "_max_key_bytes", "_values", "has_deletes")

    def __init__(self, *, max_key_bytes: int = 65_535) -> None:
        self._max_key_bytes = max_key_bytes
        self._values: dict[bytes, bytes | None] = {}
        self._lifetimes: dict[bytes, int | None] = {}
        self.has_deletes = False

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Add a value; ``ttl`` overrides the database's default lifetime.

        Raises:
            InvalidRequestError: an impossible key, value or lifetime.
        """
        if type(key) is not bytes or not 0 < len(key) <= self._max_key_bytes:
            key = checked_key(key, self._max_key_bytes)
        if type(value) is not bytes or len(value) > MAX_VALUE_BYTES:
            value = checked_value(value)
        if ttl is not None:
            self._lifetimes[key] = ttl_ms(ttl, None)
        elif self._lifetimes:
            self._lifetimes.pop(key, None)
        self._values[key] = value

    def delete(self, key: BytesLike) -> None:
        """Add a deletion.

        Raises:
            InvalidRequestError: an impossible key.
        """
        key = checked_key(key, self._max_key_bytes)
        self._values[key] = None
        self._lifetimes.pop(key, None)
        self.has_deletes = True

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._lifetimes.clear()
        self.has_deletes = False

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return sum(map(len, self._values)) + sum(len(value) for value in self._values.values() if value is not None)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def commit_rows(self, default_ttl_ms: int | None) -> "CommitRows":
        """What a commit appends: one row per key, keys ascending."""
        keys = sorted(self._values)
        kept = list(map(self._values.__getitem__, keys))
        flags = bytearray((FLAG_CREATE_TS,)) * len(keys)
        if self.has_deletes:
            flags = bytearray(_DELETED if value is None else FLAG_CREATE_TS for value in kept)
        values = [value or b"" for value in kept] if self.has_deletes else cast("list[bytes]", kept)
        lifetimes: list[tuple[int, int]] = []
        if self._lifetimes or default_ttl_ms is not None:
            for place, (key, value) in enumerate(zip(keys, kept, strict=True)):
                lifetime_ms = self._lifetimes.get(key, default_ttl_ms)
                if value is not None and lifetime_ms is not None:
                    lifetimes.append((place, lifetime_ms))
                    flags[place] |= FLAG_EXPIRE_TS
        return CommitRows(keys, values, flags, lifetimes)


class CommitRows(NamedTuple):
    """Rows of one commit in columns.  ``lifetimes``: (place, milliseconds) of the rows that have one."""

    keys: list[bytes]
    values: list[bytes]
    flags: bytearray
    lifetimes: list[tuple[int, int]]
