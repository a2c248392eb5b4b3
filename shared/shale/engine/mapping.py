"""Typed views: a part of a database as a mapping from objects to objects."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shale.codecs.codec import Codec
from shale.errors import InvalidRequestError
from shale.telemetry.shown_key import format_key

if TYPE_CHECKING:
    from shale.engine.db import Db
    from shale.engine.lifetime import Moment, Ttl
    from shale.engine.reads import Reads
    from shale.engine.write_handle import WriteHandle
    from shale.types import Row

K = TypeVar("K")
V = TypeVar("V")


class KeySpace(Generic[K, V]):
    """Which rows a view shows, and what they are as objects.

    Args:
        prefix: of all its keys; it is not part of the objects.
        key_codec: of the rest of the keys.
        codec: of the values.
    """

    def __init__(self, prefix: bytes, key_codec: Codec[K], codec: Codec[V]) -> None:
        self.prefix = prefix
        self._key_codec = key_codec
        self._codec = codec

    def key_of(self, key: K) -> bytes:
        """The key of the database.

        Raises:
            InvalidRequestError: the codec cannot store it.
        """
        try:
            return self.prefix + self._key_codec.encode(key)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"key {key!r}: {error}") from error

    def bytes_of(self, key: K, value: V) -> bytes:
        """The value of a key as it is stored; raises like ``key_of``."""
        try:
            return self._codec.encode(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"value for {key!r}: {error}") from error

    def key_from(self, key: bytes) -> K:
        """The object for a key of the database.

        Raises:
            InvalidRequestError: it was not written through such a view.
        """
        try:
            return self._key_codec.decode(key[len(self.prefix) :])
        except InvalidRequestError as error:
            raise InvalidRequestError(f"key {format_key(key)}: {error}") from error

    def value_from(self, key: bytes, value: bytes) -> V:
        """The object for a value of the database; raises like ``key_from``."""
        try:
            return self._codec.decode(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"value of {format_key(key)}: {error}") from error

    def range(self, start: K | None, stop: K | None) -> dict[str, Any]:
        """The arguments of a scan.

        Raises:
            InvalidRequestError: bounds were given, and the codec of the keys does not keep their order.
        """
        if (start is not None or stop is not None) and not self._key_codec.keeps_order:
            raise InvalidRequestError("start and stop need a key codec that keeps the order of the keys")
        return {
            "prefix": self.prefix or None,
            "start": None if start is None else self.key_of(start),
            "stop": None if stop is None else self.key_of(stop),
        }


class ReadMapping(Generic[K, V]):
    """A view that is read; made by ``mapping`` of any handle."""

    def __init__(self, reads: "Reads", space: KeySpace[K, V]) -> None:
        self._reads = reads
        self._space = space

    async def get(self, key: K, default: V | None = None) -> V | None:
        """The value of a key; ``default`` if it has none."""
        stored_key = self._space.key_of(key)
        value = await self._reads.get(stored_key)
        return default if value is None else self._space.value_from(stored_key, value)

    async def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The values of many keys, in the order given."""
        stored_keys = [self._space.key_of(key) for key in keys]
        values = await self._reads.get_many(stored_keys)
        value_from = self._space.value_from
        return [
            None if value is None else value_from(key, value) for key, value in zip(stored_keys, values, strict=True)
        ]

    async def contains(self, key: K) -> bool:
        """Whether a key has a value."""
        return await self._reads.get(self._space.key_of(key)) is not None

    async def count(self) -> int:
        """How many keys there are: a scan of all of them."""
        count = 0
        async for rows in self._reads.scan(prefix=self._space.prefix or None).batches(1024):
            count += len(rows)
        return count

    async def keys(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> AsyncIterator[K]:
        """The keys from ``start`` on and below ``stop``, in the order of their bytes; raises like ``items``."""
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.key_from(row.key)

    async def values(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> AsyncIterator[V]:
        """Their values; raises like ``items``."""
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.value_from(row.key, row.value)

    async def items(
        self, start: K | None = None, stop: K | None = None, *, reverse: bool = False
    ) -> AsyncIterator[tuple[K, V]]:
        """Both.

        Raises:
            InvalidRequestError: bounds need a key codec that keeps the order; or a row was not written this way.
        """
        async for row in self._rows(start, stop, reverse=reverse):
            yield self._space.key_from(row.key), self._space.value_from(row.key, row.value)

    def _rows(self, start: K | None, stop: K | None, *, reverse: bool) -> "AsyncIterator[Row]":
        return self._reads.scan(**self._space.range(start, stop), reverse=reverse)


class WriteMapping(ReadMapping[K, V]):
    """A view that is also written; made by ``Db.mapping``."""

    def __init__(self, db: "Db", space: KeySpace[K, V]) -> None:
        super().__init__(db, space)
        self._db = db

    async def put(self, key: K, value: V, *, ttl: "Ttl" = None, expire_at: "Moment | None" = None) -> "WriteHandle":
        """Write a value; see ``Db.put``."""
        space = self._space
        return await self._db.put(space.key_of(key), space.bytes_of(key, value), ttl=ttl, expire_at=expire_at)

    async def delete(self, key: K) -> "WriteHandle":
        """Remove a key, whether or not it is there."""
        return await self._db.delete(self._space.key_of(key))

    async def update(self, values: Mapping[K, V], *, ttl: "Ttl" = None) -> "WriteHandle | None":
        """Write many values as one commit; ``None`` if there are none."""
        batch = self._db.new_batch()
        for key, value in values.items():
            batch.put(self._space.key_of(key), self._space.bytes_of(key, value), ttl=ttl)
        return await self._db.write(batch) if len(batch) else None
