"""What can be read from a database, written once: ``Db``, ``DbReader``, snapshots and transactions are ``Reads``."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.engine.batch import BytesLike, checked_key
from shale.engine.key_limits import require_overlap, require_some_inside
from shale.engine.mapping import KeySpace, ReadMapping
from shale.engine.read_point import NOWHERE, Durability, Home, ReadPoint
from shale.engine.read_view import NEEDS_IO
from shale.engine.scan import Scan
from shale.engine.scan_range import scan_range
from shale.errors import InvalidRequestError, SstMissing
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange, Row

K = TypeVar("K")
V = TypeVar("V")

_NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE

KEY_BYTES_MAX = (1 << 32) - 1
"""Longer keys than we write can be read (docs/format.md 17)."""


class Reads(ABC):
    """The read methods.

    ``durability="durable"`` shows only what a crash cannot undo.  Expired rows are shown until a flush or a compaction
    removes them, as SlateDB does; ``hide_expired`` leaves out those that have expired by the database's clock, or by
    ``now_ms`` if that is given (milliseconds since 1970).
    """

    __slots__ = ("_home", "_limits", "gets", "scans")

    def __init__(self, home: Home = NOWHERE, limits: KeyRange | None = None) -> None:
        """``limits``: no read may lie wholly outside; the home then never has an open point."""
        self._home = home
        self._limits = limits
        self.gets = 0
        self.scans = 0

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} belongs to its process and cannot be pickled: pickle a DbReader that was opened "
            "by URL, of a checkpoint if all must see the same state"
        )

    @abstractmethod
    def _read_point(self, durability: Durability) -> ReadPoint:
        """Where lookups look now.

        Raises:
            ShaleError: the handle is closed or has failed.
        """

    async def _settled_point(self, durability: Durability = "memory") -> ReadPoint:
        """Where lookups look that have to read from the store."""
        return self._read_point(durability)

    def _scan_point(self, durability: Durability) -> ReadPoint:
        """Where a scan looks that is made now."""
        return self._read_point(durability)

    @abstractmethod
    def _clock_ms(self) -> int:
        """The database's clock, in milliseconds since 1970."""

    async def get(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> bytes | None:
        """The value of a key; ``None`` if it has none."""
        if type(key) is not bytes or not key:
            key = checked_key(key, KEY_BYTES_MAX)
        if hide_expired or now_ms is not None:
            found = await self._unexpired(key, durability, now_ms)
            return None if found is None else found.value
        point = self._home.open_point
        if point is None or durability != "memory":
            self._require_inside((key,))
            point = self._read_point(durability)
        self.gets += 1
        view, max_seq, tables = point.view, point.max_seq, None
        newest = view.newest
        if newest is not None and max_seq is None and newest.is_only_log:
            # What ``newest_value`` does, whose call would cost as much as that.
            place = newest.index.get(key)
            if place is None:
                tables = view.older
            elif not newest.log.flags[place] & _NOT_A_VALUE:
                return newest.log.values[place]
        value = view.try_value(key, max_seq, tables)
        if value is not NEEDS_IO:
            return value
        found = await self._looked_up(key, durability, None)
        return None if found is None else found.value

    async def get_row(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
    ) -> Row | None:
        """The value of a key with its place in history; ``None`` if it has none."""
        if type(key) is not bytes or not key:
            key = checked_key(key, KEY_BYTES_MAX)
        if hide_expired or now_ms is not None:
            entry = await self._unexpired(key, durability, now_ms)
        else:
            self._require_inside((key,))
            point = self._read_point(durability)
            self.gets += 1
            found = point.view.try_get(key, point.max_seq)
            entry = await self._looked_up(key, durability, None) if found is NEEDS_IO else found
        return None if entry is None else row_of(entry)

    async def get_many(
        self,
        keys: Sequence[BytesLike],
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> list[bytes | None]:
        """The values of many keys, in the order given; what is not in memory is read in two round trips.

        With ``max_bytes`` it takes some more, and stops where the values are larger together.

        Raises:
            ValuesTooLarge: they are.
        """
        checked = [key if type(key) is bytes and key else checked_key(key, KEY_BYTES_MAX) for key in keys]
        self._require_inside(checked)
        point = await self._settled_point(durability)
        self.gets += len(checked)
        if hide_expired and now_ms is None:
            now_ms = self._clock_ms()
        while True:
            try:
                return await point.view.get_many(checked, point.max_seq, now_ms=now_ms, max_bytes=max_bytes)
            except SstMissing as gone:
                await _renew(point, gone)
                point = await self._settled_point(durability)

    def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        read_ahead_bytes: int | None = None,
        cache_blocks: bool = True,
    ) -> Scan:
        """Rows by key as they are now: an async iterator, or use its ``batches``, ``columns`` or ``to_arrow``.

        Args:
            prefix: only keys that begin with it.
            start: only keys at or above it.
            stop: only keys below it.
            reverse: from the greatest key down to the smallest.
            limit: rows at most.
            durability, hide_expired, now_ms: see the class.
            read_ahead_bytes: how much one request reads; by default what the handle was opened with.
            cache_blocks: short reads go into the cache; long ones never do.
        """
        if limit is not None and limit < 0:
            raise InvalidRequestError("limit must not be negative")
        if read_ahead_bytes is not None and read_ahead_bytes < 1:
            raise InvalidRequestError("read_ahead_bytes must be greater than 0")
        wanted = scan_range(prefix=prefix, start=start, stop=stop)
        if self._limits is not None:
            require_overlap(self._limits, wanted)
        point = self._scan_point(durability)
        self.scans += 1
        if hide_expired and now_ms is None:
            now_ms = self._clock_ms()
        return Scan(
            point,
            wanted,
            prefix=bytes(prefix) if prefix else None,
            reverse=reverse,
            limit=limit,
            now_ms=now_ms,
            read_ahead_bytes=read_ahead_bytes,
            cache_blocks=cache_blocks,
        )

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> ReadMapping[bytes, V]: ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> ReadMapping[K, V]: ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """The rows below a prefix as a mapping from objects to objects.

        Args:
            codec: of the values, see ``shale.codecs``.
            key_codec: of the keys behind the prefix; bytes as they are by default.
            prefix: of all its keys, not part of the objects.
        """
        return ReadMapping(self, KeySpace(bytes(prefix), key_codec, codec))

    def _require_inside(self, keys: Sequence[bytes]) -> None:
        if self._limits is not None:
            require_some_inside(self._limits, keys)

    async def _unexpired(self, key: bytes, durability: Durability, now_ms: int | None) -> Entry | None:
        self._require_inside((key,))
        self._read_point(durability)
        self.gets += 1
        return await self._looked_up(key, durability, self._clock_ms() if now_ms is None else now_ms)

    async def _looked_up(self, key: bytes, durability: Durability, now_ms: int | None) -> Entry | None:
        """A lookup that may wait; where an SST is gone because it was replaced, the newest manifest is read."""
        while True:
            point = await self._settled_point(durability)
            try:
                return await point.view.get(key, point.max_seq, now_ms=now_ms)
            except SstMissing as gone:
                await _renew(point, gone)


def row_of(entry: Entry) -> Row:
    """What callers see of an entry."""
    return Row(
        entry.key,
        entry.value,
        entry.seq,
        entry.create_ts if entry.flags & FLAG_CREATE_TS else None,
        entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None,
    )


def checked_durability(durability: str) -> bool:
    """Whether only what is durable counts.

    Raises:
        InvalidRequestError: neither ``memory`` nor ``durable``.
    """
    if durability == "memory":
        return False
    if durability == "durable":
        return True
    raise InvalidRequestError(f"durability={durability!r}: must be 'memory' or 'durable'")


async def _renew(point: ReadPoint, gone: SstMissing) -> None:
    if point.keeper is None:
        point.view.reader.count_loss()
        raise gone
    await point.keeper.renew(gone)
