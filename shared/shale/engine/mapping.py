"""Typed mappings: a part of a database as a mapping from objects to objects."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from shale.codecs.codec import Codec
from shale.core.async_use import RecordedWrite
from shale.core.bytes_like import BytesLike, not_bytes
from shale.core.state_repr import ShowsState
from shale.core.ttl import Timestamp, Ttl
from shale.engine.write.batch import WriteBatch
from shale.engine.write.write_handle import WriteHandle
from shale.errors import InvalidRequestError, WrongType
from shale.telemetry.key_format import format_key
from shale.types import Row

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")
V = TypeVar("V")


class RowScan(Protocol):
    """A scan, as far as a mapping reads it."""

    def __aiter__(self) -> AsyncIterator[Row]:
        """Return the iterator over rows."""
        ...

    def batches(self, size: int) -> AsyncIterator[list[Row]]:
        """Yield lists of ``size`` rows."""
        ...


class RowReads(Protocol):
    """The read methods of a handle that a mapping calls."""

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""
        ...

    def scan(self, *, prefix: bytes | None, start: bytes | None, stop: bytes | None, reverse: bool) -> RowScan:
        """Return the rows of a range."""
        ...


class RowWrites(RowReads, Protocol):
    """The methods of a database that a writable mapping calls."""

    def put(
        self, key: bytes, value: bytes, *, ttl: Ttl = None, expire_at: Timestamp | None = None
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Write a value."""
        ...

    def delete(self, key: bytes) -> Coroutine[Any, Any, WriteHandle]:
        """Remove a key."""
        ...

    def new_batch(self) -> WriteBatch:
        """Return an empty batch."""
        ...

    def write(self, batch: WriteBatch) -> Coroutine[Any, Any, WriteHandle]:
        """Write a batch as one commit."""
        ...


class TransactionRows(RowReads, Protocol):
    """The methods of a transaction that a writable mapping calls."""

    def put(self, key: bytes, value: bytes, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> RecordedWrite:
        """Record a write."""
        ...

    def delete(self, key: bytes) -> RecordedWrite:
        """Record a deletion."""
        ...

    def new_batch(self) -> WriteBatch:
        """Return an empty batch."""
        ...

    def write(self, batch: WriteBatch) -> RecordedWrite:
        """Record the writes of a batch."""
        ...


def _converted(convert: Callable[[A], B], given: A, what: Callable[[], str]) -> B:
    """Encode or decode with a codec; an error says which key or value it is about."""
    try:
        return convert(given)
    except InvalidRequestError as error:
        kind = WrongType if isinstance(error, WrongType) else InvalidRequestError
        raise kind(f"{what()}: {error}") from error


class KeySpace(Generic[K, V]):
    """The rows of a mapping, and how they become objects.

    Args:
        prefix: begins every key and is not part of the objects.
        key_codec: encodes the rest of a key.
        codec: encodes values.
    """

    def __init__(self, prefix: BytesLike, key_codec: Codec[K], codec: Codec[V]) -> None:
        if not isinstance(prefix, BytesLike):
            raise not_bytes("prefix", prefix)
        for each in (codec, key_codec):
            if not hasattr(each, "decode"):
                raise WrongType(f"{each!r} is of type {type(each).__name__}: give a codec, such as shale.codecs.TEXT")
        self.prefix = bytes(prefix)
        self._key_codec = key_codec
        self._codec = codec

    def key_of(self, key: K) -> bytes:
        """Return the stored key of an object.

        Raises:
            InvalidRequestError: the codec cannot store it.
        """
        return self.prefix + _converted(self._key_codec.encode, key, lambda: f"key {key!r}")

    def bytes_of(self, key: K, value: V) -> bytes:
        """Return the stored value of an object; raises like ``key_of``."""
        return _converted(self._codec.encode, value, lambda: f"value for {key!r}")

    def key_from(self, key: bytes) -> K:
        """Return the object of a stored key.

        Raises:
            InvalidRequestError: the codec cannot decode it.
        """
        return _converted(self._key_codec.decode, key[len(self.prefix) :], lambda: f"key {format_key(key)}")

    def value_from(self, key: bytes, value: bytes) -> V:
        """Return the object of a stored value; raises like ``key_from``."""
        return _converted(self._codec.decode, value, lambda: f"value of {format_key(key)}")

    def range(self, start: K | None, stop: K | None) -> dict[str, Any]:
        """Return the arguments of a scan.

        Raises:
            InvalidRequestError: there are bounds, and the key codec does not keep the order of keys.
        """
        if (start is not None or stop is not None) and not self._key_codec.keeps_order:
            raise InvalidRequestError("start and stop need a key codec that keeps the order of the keys")
        return {
            "prefix": self.prefix or None,
            "start": None if start is None else self.key_of(start),
            "stop": None if stop is None else self.key_of(stop),
        }


class ReadMapping(ShowsState, Generic[K, V]):
    """A mapping to read; ``mapping`` of any handle returns one."""

    def __init__(self, reads: RowReads, space: KeySpace[K, V]) -> None:
        self._reads = reads
        self._space = space

    def _shown_state(self) -> Mapping[str, object]:
        return {"prefix": self._space.prefix, "of": repr(self._reads)}

    def __getitem__(self, key: K) -> NoReturn:
        raise WrongType(
            "mapping[…] would have to wait: write `await mapping.get(key)`; mappings of shale.sync have […]"
        )

    async def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of a key, or ``default`` if it has none."""
        stored_key = self._space.key_of(key)
        value = await self._reads.get(stored_key)
        return default if value is None else self._space.value_from(stored_key, value)

    async def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the values of many keys, in the order given."""
        stored_keys = [self._space.key_of(key) for key in keys]
        values = await self._reads.get_many(stored_keys)
        value_from = self._space.value_from
        return [
            None if value is None else value_from(key, value) for key, value in zip(stored_keys, values, strict=True)
        ]

    async def contains(self, key: K) -> bool:
        """Return whether a key has a value."""
        return await self._reads.get(self._space.key_of(key)) is not None

    async def count(self) -> int:
        """Return the number of keys; scans all of them."""
        count = 0
        async for rows in self._rows(None, None, reverse=False).batches(1024):
            count += len(rows)
        return count

    async def keys(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> AsyncIterator[K]:
        """Yield the keys in ``[start, stop)``, in the order of their bytes; raises like ``items``."""
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.key_from(row.key)

    async def values(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> AsyncIterator[V]:
        """Yield the values of the same keys; raises like ``items``."""
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.value_from(row.key, row.value)

    async def items(
        self, start: K | None = None, stop: K | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[K, V]]:
        """Yield keys and values.

        Raises:
            InvalidRequestError: bounds need a key codec that keeps the order; or a codec cannot decode a row.
        """
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.key_from(row.key), self._space.value_from(row.key, row.value)

    def _rows(self, start: K | None, stop: K | None, *, reverse: bool) -> RowScan:
        return self._reads.scan(**self._space.range(start, stop), reverse=reverse)


class WriteMapping(ReadMapping[K, V]):
    """A mapping to read and write; ``Db.mapping`` returns one."""

    def __init__(self, db: RowWrites, space: KeySpace[K, V]) -> None:
        super().__init__(db, space)
        self._db = db

    async def put(self, key: K, value: V, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> WriteHandle:
        """Write a value; see ``Db.put``."""
        space = self._space
        return await self._db.put(space.key_of(key), space.bytes_of(key, value), ttl=ttl, expire_at=expire_at)

    async def delete(self, key: K) -> WriteHandle:
        """Remove a key, whether or not it exists."""
        return await self._db.delete(self._space.key_of(key))

    async def update(self, values: Mapping[K, V], *, ttl: Ttl = None) -> WriteHandle | None:
        """Write many values as one commit; return ``None`` if there are none."""
        batch = _batch_of(self._db.new_batch(), self._space, values, ttl)
        return await self._db.write(batch) if len(batch) else None


class TransactionMapping(ReadMapping[K, V]):
    """A mapping of a transaction; ``Transaction.mapping`` returns one.

    It reads with the transaction's own writes.  Its writes are recorded at once, and may be awaited.
    """

    def __init__(self, transaction: TransactionRows, space: KeySpace[K, V]) -> None:
        super().__init__(transaction, space)
        self._transaction = transaction

    def put(self, key: K, value: V, *, ttl: Ttl = None, expire_at: Timestamp | None = None) -> RecordedWrite:
        """Record a value; see ``Transaction.put``."""
        space = self._space
        return self._transaction.put(space.key_of(key), space.bytes_of(key, value), ttl=ttl, expire_at=expire_at)

    def delete(self, key: K) -> RecordedWrite:
        """Record the deletion of a key, whether or not it exists."""
        return self._transaction.delete(self._space.key_of(key))

    def update(self, values: Mapping[K, V], *, ttl: Ttl = None) -> RecordedWrite:
        """Record many values; none of them, if one cannot be stored."""
        return self._transaction.write(_batch_of(self._transaction.new_batch(), self._space, values, ttl))


def _batch_of(batch: WriteBatch, space: KeySpace[K, V], values: Mapping[K, V], ttl: Ttl) -> WriteBatch:
    for key, value in values.items():
        batch.put(space.key_of(key), space.bytes_of(key, value), ttl=ttl)
    return batch
