"""The read methods that ``Db``, ``DbReader``, snapshots and transactions share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from shale.codecs.codec import Codec
from shale.codecs.plain import BYTES
from shale.core.argument_types import keys_of
from shale.core.bytes_like import BytesLike
from shale.core.lazy_names import import_at_call
from shale.core.state_repr import ShowsState
from shale.core.suggestions import invalid_choice, require_known
from shale.engine.read.lookup import PendingLookup, finish_value, lookup, lookup_value, resume
from shale.engine.read.lookup import get as get_entry
from shale.engine.read.read_point import NULL_SOURCE, Durability, PointSource, ReadPoint
from shale.engine.read.super_version import SuperVersion
from shale.engine.write.batch import checked_key
from shale.engine.write.key_limits import require_overlap, require_some_inside
from shale.errors import InvalidRequestError, SstMissing, WrongType
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange, Row

if TYPE_CHECKING:
    from shale.engine.mapping import KeySpace, ReadMapping
    from shale.engine.read.multi_get import get_many
    from shale.engine.scan.plan import ScanPlan, scan_range
    from shale.engine.scan.recency import RecencyScan
    from shale.engine.scan.scan import Scan
else:
    KeySpace, ReadMapping, get_many, ScanPlan, scan_range, RecencyScan, Scan = import_at_call(
        globals(),
        KeySpace="shale.engine.mapping",
        ReadMapping="shale.engine.mapping",
        get_many="shale.engine.read.multi_get",
        ScanPlan="shale.engine.scan.plan",
        scan_range="shale.engine.scan.plan",
        RecencyScan="shale.engine.scan.recency",
        Scan="shale.engine.scan.scan",
    )

K = TypeVar("K")
V = TypeVar("V")

_NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE

KEY_BYTES_MAX = (1 << 32) - 1
"""Reads accept longer keys than writes do (docs/reference/format.md 17)."""


class ScanOptions(TypedDict, total=False):
    """How a scan reads.

    durability, hide_expired, now_ms: see ``Reads``.
    read_ahead_bytes: size of one request; by default the setting of the handle.
    max_fetch_tasks: requests of that size at the same time, for each SST that is read; 1 by default.
    cache_blocks: short reads fill the cache (the default); long ones never do.
    start_inclusive: the key ``start`` belongs to the range (the default).
    stop_inclusive: the key ``stop`` belongs to the range; by default it does not.
    """

    durability: Durability
    hide_expired: bool
    now_ms: int | None
    read_ahead_bytes: int | None
    max_fetch_tasks: int
    cache_blocks: bool
    start_inclusive: bool
    stop_inclusive: bool


_SCAN_OPTIONS = frozenset(ScanOptions.__annotations__)
_SCAN_PARAMETERS = ("prefix", "start", "stop", "reverse", "limit")


class Reads(ShowsState, ABC):
    """The read methods.

    ``durability="durable"`` shows only writes that survive a crash.  Expired rows are visible until a flush or a
    compaction removes them, as in SlateDB.  ``hide_expired`` hides rows that have expired by the database's clock;
    ``now_ms``, in milliseconds since 1970, replaces that clock.
    """

    __slots__ = ("_point_source", "_visible_range", "gets", "scans")

    def __init__(self, point_source: PointSource = NULL_SOURCE, visible_range: KeyRange | None = None) -> None:
        """Make no request.

        Args:
            point_source: the newest state; it has no fast point if there is a visible range.
            visible_range: a read wholly outside is refused; ``None``: no limit.
        """
        self._point_source = point_source
        self._visible_range = visible_range
        self.gets = 0
        self.scans = 0

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} belongs to its process and cannot be pickled: pickle a DbReader that was opened "
            "by URL, of a checkpoint if all must see the same state"
        )

    @abstractmethod
    def _read_point(self, durability: Durability) -> ReadPoint:
        """Return where lookups read now.

        Raises:
            ShaleError: the handle is closed or has failed.
        """

    async def _resolve_point(self, durability: Durability = "memory") -> ReadPoint:
        """Return where lookups read that need I/O."""
        return self._read_point(durability)

    def _scan_point(self, durability: Durability) -> ReadPoint:
        """Return where a scan reads that begins now."""
        return self._read_point(durability)

    @abstractmethod
    def _clock_ms(self) -> int:
        """Return the time of the database's clock, in milliseconds since 1970."""

    async def get(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        cache_blocks: bool = True,
    ) -> bytes | None:
        """Return the value of a key, or ``None`` if it has none.

        Args:
            key: not empty.
            durability, hide_expired, now_ms: see the class.
            cache_blocks: blocks that are read fill the cache.
        """
        if type(key) is not bytes or not key:
            key = checked_key(key, KEY_BYTES_MAX)
        if hide_expired or now_ms is not None or not cache_blocks:
            if hide_expired and now_ms is None:
                now_ms = self._clock_ms()
            entry = await self._get_entry(key, durability, now_ms, keep=cache_blocks)
            return None if entry is None else entry.value
        point = self._point_source.fast_point
        if point is None or durability != "memory":
            self._require_in_visible_range((key,))
            point = self._read_point(durability)
        self.gets += 1
        view, max_seq, tables = point.view, point.max_seq, None
        newest = view.newest
        if newest is not None and max_seq is None and newest.is_only_log:
            # The hit in the active memtable, and the search of SSTs if no other memtable is left, inlined: a call
            # would cost as much as the search.
            row = newest.index.get(key)
            if row is None:
                tables, trees = view.older, view.trees
                if not tables and trees.value_kernel is not None:
                    found = trees.value_kernel(key, trees.value_record)
                    if type(found) is not int:
                        return found  # type: ignore[return-value]
                    value = finish_value(view, key, found)
                    if type(value) is not PendingLookup:
                        return value  # type: ignore[return-value]
                    entry = await self._resume(view, value, durability, None)
                    return None if entry is None else entry.value
            elif not newest.log.flags[row] & _NOT_A_VALUE:
                return newest.log.values[row]
        value = lookup_value(view, key, max_seq, tables)
        if type(value) is not PendingLookup:
            return value  # type: ignore[return-value]
        entry = await self._resume(view, value, durability, None)
        return None if entry is None else entry.value

    async def get_row(
        self,
        key: BytesLike,
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        cache_blocks: bool = True,
    ) -> Row | None:
        """Return the value of a key with its sequence number and times, or ``None`` if it has none; see ``get``."""
        if type(key) is not bytes or not key:
            key = checked_key(key, KEY_BYTES_MAX)
        if hide_expired and now_ms is None:
            now_ms = self._clock_ms()
        entry = await self._get_entry(key, durability, now_ms, keep=cache_blocks)
        return None if entry is None else row_of(entry)

    async def get_many(
        self,
        keys: Sequence[BytesLike],
        *,
        durability: Durability = "memory",
        hide_expired: bool = False,
        now_ms: int | None = None,
        max_bytes: int | None = None,
        cache_blocks: bool = True,
    ) -> list[bytes | None]:
        """Return the values of many keys, in the order given; blocks that are not in memory take two round trips.

        Args:
            keys: not empty each.
            durability, hide_expired, now_ms: see the class.
            max_bytes: limit of all values together; such a read takes a few more round trips.
            cache_blocks: blocks that are read fill the cache.

        Raises:
            ResponseTooLarge: the values are larger than ``max_bytes``.
        """
        checked = [key if type(key) is bytes and key else checked_key(key, KEY_BYTES_MAX) for key in keys_of(keys)]
        self._require_in_visible_range(checked)
        point = await self._resolve_point(durability)
        self.gets += len(checked)
        if hide_expired and now_ms is None:
            now_ms = self._clock_ms()
        while True:
            try:
                return await get_many(
                    point.view, checked, point.max_seq, now_ms=now_ms, max_bytes=max_bytes, keep=cache_blocks
                )
            except SstMissing as gone:
                await _recover_missing_sst(point, gone)
                point = await self._resolve_point(durability)

    def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        **options: Unpack[ScanOptions],
    ) -> "Scan":
        """Return the current rows by key: an async iterator with ``batches``, ``columns`` and ``to_arrow``.

        Args:
            prefix: only keys that begin with it.
            start: only keys at or above it.
            stop: only keys below it.
            reverse: from the greatest key down to the smallest.
            limit: rows at most.
            options: see ``ScanOptions``.

        Raises:
            UnknownOption: there is no option of that name.
            InvalidRequestError: an impossible bound, limit or option.
        """
        if options:
            require_known(options, _SCAN_OPTIONS, _SCAN_PARAMETERS)
        if limit is not None and not (hasattr(limit, "__index__") and limit >= 0):
            kind = InvalidRequestError if hasattr(limit, "__index__") else WrongType
            raise kind(f"limit={limit!r}: must be a number of rows, and not negative")
        now_ms, read_ahead_bytes = options.get("now_ms"), options.get("read_ahead_bytes")
        fetch_tasks = options.get("max_fetch_tasks", 1)
        if fetch_tasks < 1 or (read_ahead_bytes is not None and read_ahead_bytes < 1):
            raise InvalidRequestError("read_ahead_bytes and max_fetch_tasks must be greater than 0")
        wanted = range_of(prefix, start, stop, options)
        if self._visible_range is not None:
            require_overlap(self._visible_range, wanted)
        point = self._scan_point(options.get("durability", "memory"))
        self.scans += 1
        if now_ms is None and options.get("hide_expired", False):
            now_ms = self._clock_ms()
        plan = ScanPlan(
            key_range=wanted,
            prefix=bytes(prefix) if prefix else None,
            reverse=reverse,
            expected_rows=limit,
            now_ms=now_ms,
            read_ahead_bytes=read_ahead_bytes,
            fetch_tasks=fetch_tasks,
            cache_blocks=options.get("cache_blocks", True),
        )
        return Scan(point, plan)

    def scan_prefix_by_recency(
        self, prefix: BytesLike, *, reverse: bool = False, durability: Durability = "memory", cache_blocks: bool = True
    ) -> "RecencyScan":
        """Return the stored rows of a prefix, the newest source first: what was written last needs no SST.

        Args:
            prefix: all keys begin with it; they lie in one segment.
            reverse: keys descend inside each source.
            durability: see the class.
            cache_blocks: short reads fill the cache.

        Returns:
            An async iterator of ``Entry``: all versions, also tombstones and merge operands, expired or not.

        Raises:
            InvalidRequestError: the prefix is not bytes-like, or keys with it are in several segments.
        """
        wanted = scan_range(prefix=prefix)
        if self._visible_range is not None:
            require_overlap(self._visible_range, wanted)
        point = self._scan_point(durability)
        self.scans += 1
        plan = ScanPlan(key_range=wanted, prefix=bytes(prefix) or None, reverse=reverse, cache_blocks=cache_blocks)
        return RecencyScan(point, plan)

    @overload
    def mapping(self, *, codec: Codec[V], prefix: BytesLike = b"") -> "ReadMapping[bytes, V]": ...

    @overload
    def mapping(self, *, codec: Codec[V], key_codec: Codec[K], prefix: BytesLike = b"") -> "ReadMapping[K, V]": ...

    def mapping(self, *, codec: Codec[Any], key_codec: Codec[Any] = BYTES, prefix: BytesLike = b"") -> Any:
        """Return the rows below a prefix as a mapping from objects to objects.

        Args:
            codec: encodes values, see ``shale.codecs``.
            key_codec: encodes the rest of a key after the prefix; the default takes bytes.
            prefix: begins every key and is not part of the objects.
        """
        return ReadMapping(self, KeySpace(prefix, key_codec, codec))

    def _require_in_visible_range(self, keys: Sequence[bytes]) -> None:
        if self._visible_range is not None:
            require_some_inside(self._visible_range, keys)

    async def _get_entry(self, key: bytes, durability: Durability, now_ms: int | None, *, keep: bool) -> Entry | None:
        self._require_in_visible_range((key,))
        point = self._read_point(durability)
        self.gets += 1
        found = lookup(point.view, key, point.max_seq, now_ms=now_ms, keep=keep)
        if type(found) is not PendingLookup:
            return found  # type: ignore[return-value]
        return await self._resume(point.view, found, durability, now_ms, keep=keep)

    async def _resume(
        self,
        view: SuperVersion,
        pending: PendingLookup,
        durability: Durability,
        now_ms: int | None,
        *,
        keep: bool = True,
    ) -> Entry | None:
        """Finish a lookup with reads from the store.

        It starts again where a newer state has replaced its own, because the old one is no longer protected or lacks
        an SST.
        """
        while True:
            point = await self._resolve_point(durability)
            try:
                if point.view is view:
                    return (await resume(view, [pending], point.max_seq, now_ms=now_ms, keep=keep))[0]
                return await get_entry(point.view, pending.key, point.max_seq, now_ms=now_ms, keep=keep)
            except SstMissing as gone:
                await _recover_missing_sst(point, gone)


def range_of(
    prefix: BytesLike | None, start: BytesLike | None, stop: BytesLike | None, options: ScanOptions
) -> KeyRange:
    """Return the keys of a scan; see ``Reads.scan``."""
    return scan_range(
        prefix=prefix,
        start=start,
        stop=stop,
        start_inclusive=options.get("start_inclusive", True),
        stop_inclusive=options.get("stop_inclusive", False),
    )


def row_of(entry: Entry) -> Row:
    """Return an entry as callers see it."""
    return Row(
        entry.key,
        entry.value,
        entry.seq,
        entry.create_ts if entry.flags & FLAG_CREATE_TS else None,
        entry.expire_ts if entry.flags & FLAG_EXPIRE_TS else None,
    )


def checked_durability(durability: str) -> bool:
    """Return whether only durable writes are visible.

    Raises:
        InvalidRequestError: the value is neither ``memory`` nor ``durable``.
    """
    if durability == "memory":
        return False
    if durability == "durable":
        return True
    raise invalid_choice("durability", durability, ("memory", "durable"))


async def _recover_missing_sst(point: ReadPoint, gone: SstMissing) -> None:
    if point.view_provider is None:
        point.view.reader.sections.count_missing()
        raise gone
    await point.view_provider.on_sst_missing(gone)
