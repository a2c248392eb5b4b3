"""Typed views of a database as Python mappings."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

from shale.engine.mapping import KeySpace
from shale.engine.write.batch import WriteBatch
from shale.types import Row

K = TypeVar("K")
V = TypeVar("V")
_ROWS_PER_COMMIT = 10_000


class BlockingRows(Protocol):
    """The rows of a blocking scan."""

    def __iter__(self) -> Iterator[Row]: ...

    def batches(self, size: int) -> Iterator[list[Row]]:
        """Yield lists of ``size`` rows; the last may be shorter."""
        ...


class BlockingSource(Protocol):
    """The reads of a blocking handle that a mapping needs."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; ``None`` if it has none."""
        ...

    def scan(
        self,
        *,
        prefix: bytes | None = None,
        start: bytes | None = None,
        stop: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> BlockingRows:
        """Return the rows of a range."""
        ...


class BlockingSink(BlockingSource, Protocol):
    """The reads and writes of a blocking handle that a mutable mapping needs."""

    def put(self, key: bytes, value: bytes, /) -> object:
        """Write a value."""
        ...

    def delete(self, key: bytes, /) -> object:
        """Delete a key."""
        ...

    def new_batch(self) -> WriteBatch:
        """Return an empty batch."""
        ...

    def write(self, batch: WriteBatch, /) -> object:
        """Write a batch as one commit, or record it in a transaction."""
        ...


class ReadMapping(Mapping[K, V]):
    """A part of a database as a mapping; made by ``mapping`` of any blocking handle.

    Keys come in the order of their bytes, and an iteration shows one state.  ``len`` scans all rows.
    """

    def __init__(self, reads: BlockingSource, space: KeySpace[K, V]) -> None:
        self._reads = reads
        self._space = space

    def __getitem__(self, key: K) -> V:
        stored_key = self._space.key_of(key)
        value = self._reads.get(stored_key)
        if value is None:
            raise KeyError(key)
        return self._space.value_from(stored_key, value)

    def __contains__(self, key: object) -> bool:
        return self._reads.get(self._space.key_of(cast("K", key))) is not None

    def __iter__(self) -> Iterator[K]:
        return (self._space.key_from(row.key) for row in self.rows())

    def __reversed__(self) -> Iterator[K]:
        return (self._space.key_from(row.key) for row in self.rows(reverse=True))

    def __bool__(self) -> bool:
        return next(self.rows(limit=1), None) is not None

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._reads.scan(prefix=self._space.prefix or None).batches(1024))

    def items(self) -> ItemsView[K, V]:
        """Return keys with their values, in one scan."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return the values, in one scan."""
        return _Values(self)

    def range(self, start: K | None = None, stop: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Yield keys from ``start`` on and below ``stop``, with their values.

        Raises:
            InvalidRequestError: the codec of the keys does not keep their order.
        """
        return map(self.item_of, self.rows(start, stop, reverse=reverse))

    def rows(
        self, start: K | None = None, stop: K | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        """Yield the rows of a range; raises like ``range``."""
        return iter(self._reads.scan(**self._space.range(start, stop), reverse=reverse, limit=limit))

    def item_of(self, row: Row) -> tuple[K, V]:
        """Return the key and value of a row."""
        return self._space.key_from(row.key), self._space.value_from(row.key, row.value)


class WriteMapping(ReadMapping[K, V], MutableMapping[K, V]):
    """A part of a database as a mutable mapping; made by ``Db.mapping`` and ``Transaction.mapping``.

    Assignments are writes like ``Db.put``, not yet durable.  ``update`` is one commit.  ``del``, ``pop`` and
    ``setdefault`` read and then write, and other threads may write in between.
    """

    def __init__(self, db: BlockingSink, space: KeySpace[K, V]) -> None:
        super().__init__(db, space)
        self._db = db

    def __setitem__(self, key: K, value: V) -> None:
        self._db.put(self._space.key_of(key), self._space.bytes_of(key, value))

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._db.delete(self._space.key_of(key))

    def update(self, other: Any = (), /, **values: Any) -> None:
        """Write the items of a mapping or of pairs, and the keywords, as one commit."""
        pairs: Iterable[tuple[Any, Any]] = other.items() if isinstance(other, Mapping) else other
        both: Iterable[tuple[Any, Any]] = chain(pairs, values.items())
        batch = self._db.new_batch()
        for key, value in both:
            batch.put(self._space.key_of(key), self._space.bytes_of(key, value))
        if len(batch):
            self._db.write(batch)

    def clear(self) -> None:
        """Remove every key, many to a commit."""
        for rows in self._reads.scan(prefix=self._space.prefix or None).batches(_ROWS_PER_COMMIT):
            batch = self._db.new_batch()
            for row in rows:
                batch.delete(row.key)
            self._db.write(batch)


class _Items(ItemsView[K, V]):
    _mapping: ReadMapping[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return map(self._mapping.item_of, self._mapping.rows())


class _Values(ValuesView[V]):
    _mapping: ReadMapping[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (self._mapping.item_of(row)[1] for row in self._mapping.rows())
