"""Tables, statements and transactions of SQL drivers, which differ in placeholders, locks and upserts.

A transaction is a generator: it yields a statement, gets its rows, and returns the result.  Drivers only run it, in a
thread or on a connection of the event loop.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio

from shale.errors import AccessDenied, InvalidRequestError
from shale.store.transactional.port import ANSWER_S, SCHEMA_VERSION, CommitRecord, Slot, require_schema

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
Statement: TypeAlias = tuple[str, tuple[str | int, ...]]
Transaction: TypeAlias = Generator[Statement, Sequence[Row], T]

_COLUMNS = "destination, source, put_id, checksum, size, created_at_ms, is_committed, is_deleted"
_SELECT = f"SELECT {_COLUMNS} FROM shale_cas_records"
_LAST_CHARACTER = "\U0010ffff"


class Dialect(NamedTuple):
    """What differs between databases.

    Args:
        placeholder: of a parameter.
        key_type: the type of a key; keys compare by code points.
        inline_index: the index of unfinished records, within the table; empty: it is a statement of its own.
        shared_lock: the end of a SELECT whose row no other transaction may change before this one ends.
        ignore_duplicate: the end of an INSERT that does nothing if the key exists.
        raise_mark: the end of an INSERT that raises an existing mark.
    """

    placeholder: str
    key_type: str
    inline_index: str
    shared_lock: str
    ignore_duplicate: str
    raise_mark: str


SQLITE = Dialect(
    placeholder="?",
    key_type="TEXT",
    inline_index="",
    shared_lock="",
    ignore_duplicate="ON CONFLICT DO NOTHING",
    raise_mark="ON CONFLICT (namespace) DO UPDATE SET id = MAX(id, excluded.id)",
)
POSTGRESQL = Dialect(
    placeholder="%s",
    key_type='TEXT COLLATE "C"',
    inline_index="",
    shared_lock=" FOR SHARE",
    ignore_duplicate="ON CONFLICT DO NOTHING",
    raise_mark="ON CONFLICT (namespace) DO UPDATE SET id = GREATEST(shale_cas_marks.id, excluded.id)",
)
MYSQL = Dialect(
    placeholder="%s",
    key_type="VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    inline_index=", INDEX shale_cas_unfinished (is_committed, is_deleted)",
    shared_lock=" LOCK IN SHARE MODE",
    ignore_duplicate="ON DUPLICATE KEY UPDATE {key} = {key}",
    raise_mark="ON DUPLICATE KEY UPDATE id = GREATEST(id, VALUES(id))",
)


class SqlTransactions:
    """The transactions of the port in one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._mark = dialect.placeholder

    def create_schema(self) -> Transaction[None]:
        """Create tables and indexes."""
        key = f"{self._dialect.key_type} NOT NULL PRIMARY KEY"
        yield (
            f"CREATE TABLE IF NOT EXISTS shale_cas_records (destination {key}, source TEXT NOT NULL, "
            "put_id VARCHAR(64) NOT NULL, checksum VARCHAR(64) NOT NULL, size BIGINT NOT NULL, "
            "created_at_ms BIGINT NOT NULL, is_committed INTEGER NOT NULL, is_deleted INTEGER NOT NULL"
            f"{self._dialect.inline_index})",
            (),
        )
        if not self._dialect.inline_index:
            index = "CREATE INDEX IF NOT EXISTS shale_cas_unfinished ON shale_cas_records (is_committed, is_deleted)"
            yield index, ()
        yield f"CREATE TABLE IF NOT EXISTS shale_cas_marks (namespace {key}, id BIGINT NOT NULL)", ()
        yield f"CREATE TABLE IF NOT EXISTS shale_cas_schema (name {key}, version INTEGER NOT NULL)", ()
        yield self._insert("shale_cas_schema", "name", ("records", SCHEMA_VERSION), columns="name, version")

    def schema_version(self) -> Transaction[int | None]:
        """Return the version; the table exists."""
        rows = yield f"SELECT version FROM shale_cas_schema WHERE name = {self._mark}", ("records",)
        return int(rows[0][0]) if rows else None

    def insert(self, record: CommitRecord, slot: Slot | None) -> Transaction[CommitRecord | None]:
        """See ``TransactionalStore.insert``.  The lock on the mark keeps a collector from raising it meanwhile."""
        mark = 0
        if slot is not None:
            yield self._insert("shale_cas_marks", "namespace", (slot.namespace, 0), columns="namespace, id")
            rows = yield self._select_mark(self._dialect.shared_lock), (slot.namespace,)
            mark = int(rows[0][0])
        if (found := (yield from self.get(record.destination))) is not None:
            return found
        if slot is not None and slot.id <= mark:
            return None
        yield self._insert("shale_cas_records", "destination", _values_of(record), columns=_COLUMNS)
        return (yield from self.get(record.destination))

    def get(self, destination: str) -> Transaction[CommitRecord | None]:
        """See ``TransactionalStore.get``."""
        rows = yield f"{_SELECT} WHERE destination = {self._mark}", (destination,)
        return _record_of(rows[0]) if rows else None

    def set_committed(self, record: CommitRecord) -> Transaction[None]:
        """See ``TransactionalStore.set_committed``."""
        where = f"destination = {self._mark} AND put_id = {self._mark}"
        yield f"UPDATE shale_cas_records SET is_committed = 1 WHERE {where}", (record.destination, record.put_id)

    def set_deleted(self, destinations: Sequence[str]) -> Transaction[None]:
        """See ``TransactionalStore.set_deleted``."""
        for destination in sorted(destinations):  # one order, so that two passes cannot wait for each other
            yield f"UPDATE shale_cas_records SET is_deleted = 1 WHERE destination = {self._mark}", (destination,)

    def remove_deleted(self, destinations: Sequence[str]) -> Transaction[None]:
        """See ``TransactionalStore.remove_deleted``."""
        statement = f"DELETE FROM shale_cas_records WHERE destination = {self._mark} AND is_deleted = 1"
        for destination in sorted(destinations):
            yield statement, (destination,)

    def unfinished(self, prefix: str) -> Transaction[Sequence[CommitRecord]]:
        """See ``TransactionalStore.unfinished``."""
        within = self._within("destination")
        uncommitted = f"{_SELECT} WHERE is_committed = 0 AND {within}"
        deleted = f"{_SELECT} WHERE is_committed = 1 AND is_deleted = 1 AND {within}"
        rows = yield f"{uncommitted} UNION ALL {deleted} ORDER BY destination", _range_of(prefix) * 2
        return [_record_of(row) for row in rows]

    def records(self, prefix: str) -> Transaction[Sequence[CommitRecord]]:
        """See ``TransactionalStore.records``."""
        rows = yield f"{_SELECT} WHERE {self._within('destination')} ORDER BY destination", _range_of(prefix)
        return [_record_of(row) for row in rows]

    def low_water_mark(self, namespace: str) -> Transaction[int]:
        """See ``TransactionalStore.low_water_mark``."""
        rows = yield self._select_mark(), (namespace,)
        return int(rows[0][0]) if rows else 0

    def raise_low_water_mark(self, namespace: str, id: int) -> Transaction[int]:  # noqa: A002 - the port's name
        """See ``TransactionalStore.raise_low_water_mark``."""
        values = f"VALUES ({self._mark}, {self._mark})"
        statement = f"INSERT INTO shale_cas_marks (namespace, id) {values} {self._dialect.raise_mark}"
        yield statement, (namespace, id)
        return (yield from self.low_water_mark(namespace))

    def low_water_marks(self, prefix: str) -> Transaction[dict[str, int]]:
        """See ``TransactionalStore.low_water_marks``."""
        where = f"({self._within('namespace')} OR namespace = {self._mark})"
        values = (*_range_of(prefix), prefix.rstrip("/"))
        rows = yield f"SELECT namespace, id FROM shale_cas_marks WHERE {where} ORDER BY namespace", values
        return {str(namespace): int(mark) for namespace, mark in rows if mark}

    def import_committed(self, records: Sequence[CommitRecord]) -> Transaction[None]:
        """See ``TransactionalStore.import_committed``."""
        for record in records:
            yield self._insert("shale_cas_records", "destination", _values_of(record), columns=_COLUMNS)

    def remove_all(self, *prefixes: str) -> Transaction[None]:
        """See ``TransactionalStore.remove_all``."""
        for prefix in prefixes:
            yield f"DELETE FROM shale_cas_records WHERE {self._within('destination')}", _range_of(prefix)
            yield f"DELETE FROM shale_cas_marks WHERE {self._within('namespace')}", _range_of(prefix)
            yield f"DELETE FROM shale_cas_marks WHERE namespace = {self._mark}", (prefix.rstrip("/"),)

    def _insert(self, table: str, key: str, values: tuple[str | int, ...], *, columns: str) -> Statement:
        marks = ", ".join([self._mark] * len(values))
        ignore = self._dialect.ignore_duplicate.format(key=key)
        return f"INSERT INTO {table} ({columns}) VALUES ({marks}) {ignore}", values

    def _select_mark(self, lock: str = "") -> str:
        return f"SELECT id FROM shale_cas_marks WHERE namespace = {self._mark}{lock}"

    def _within(self, column: str) -> str:
        return f"{column} >= {self._mark} AND {column} < {self._mark}"


@contextmanager
def answered() -> Iterator[None]:
    """Limit the time of the block, which waits for the database.

    Raises:
        TimeoutError: there was no answer.
    """
    limit_s = ANSWER_S
    try:
        with anyio.fail_after(limit_s):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {limit_s:g} s") from error


async def run_on(cursor: Any, transaction: Transaction[T]) -> T:
    """Run the statements of a transaction on a cursor of the event loop.

    Raises:
        TimeoutError: a statement was not answered.
    """
    try:
        statement, values = next(transaction)
        while True:
            with answered():
                await cursor.execute(statement, values)
                rows = await cursor.fetchall() if cursor.description is not None else []
            statement, values = transaction.send(rows)
    except StopIteration as ended:
        result: T = ended.value
        return result


class SqlTransactionalStore:
    """The port over transactions that a driver runs."""

    def __init__(self, url: str, dialect: Dialect) -> None:
        self._url = url
        self._transactions = SqlTransactions(dialect)
        self._is_schema_known = False

    @property
    def url(self) -> str:
        """See ``TransactionalStore``."""
        return self._url

    async def execute(self, start: Callable[[], Transaction[T]]) -> T:
        """Run one transaction; drivers implement it.

        Raises:
            UnavailableError: the database is away or busy; the transaction may have been committed.
            AccessDenied: the user may not do this.
            InvalidRequestError: there are no tables, or a key is too long for them.
        """
        raise NotImplementedError

    async def run(self, start: Callable[[], Transaction[T]]) -> T:
        """Run one transaction on tables of this release.

        Raises:
            UnavailableError: see ``execute``.
            InvalidRequestError: there are no tables, or those of another release.
        """
        if not self._is_schema_known:
            require_schema(self._url, await self.schema_version())
            self._is_schema_known = True
        return await self.execute(start)

    async def create_schema(self) -> None:
        """See ``TransactionalStore``."""
        await self.execute(self._transactions.create_schema)
        require_schema(self._url, await self.schema_version())
        self._is_schema_known = True

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        try:
            return await self.execute(self._transactions.schema_version)
        except AccessDenied:
            raise
        except InvalidRequestError:  # no such table
            return None

    async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.insert(record, slot))

    async def get(self, destination: str) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.get(destination))

    async def set_committed(self, record: CommitRecord) -> None:
        """See ``TransactionalStore``."""
        await self.run(lambda: self._transactions.set_committed(record))

    async def set_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        await self.run(lambda: self._transactions.set_deleted(destinations))

    async def remove_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        await self.run(lambda: self._transactions.remove_deleted(destinations))

    async def unfinished(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.unfinished(prefix))

    async def records(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.records(prefix))

    async def low_water_mark(self, namespace: str) -> int:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.low_water_mark(namespace))

    async def raise_low_water_mark(self, namespace: str, id: int) -> int:  # noqa: A002 - the port's name
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.raise_low_water_mark(namespace, id))

    async def low_water_marks(self, prefix: str) -> dict[str, int]:
        """See ``TransactionalStore``."""
        return await self.run(lambda: self._transactions.low_water_marks(prefix))

    async def import_committed(self, records: Sequence[CommitRecord]) -> None:
        """See ``TransactionalStore``."""
        await self.run(lambda: self._transactions.import_committed(records))

    async def remove_all(self, *prefixes: str) -> None:
        """See ``TransactionalStore``."""
        await self.run(lambda: self._transactions.remove_all(*prefixes))


def _values_of(record: CommitRecord) -> tuple[str | int, ...]:
    return (
        record.destination,
        record.source,
        record.put_id,
        record.checksum,
        record.size,
        record.created_at_ms,
        int(record.is_committed),
        int(record.is_deleted),
    )


def _record_of(row: Row) -> CommitRecord:
    destination, source, put_id, checksum, size, created_at_ms, is_committed, is_deleted = row
    return CommitRecord(
        destination=destination,
        source=source,
        put_id=put_id,
        checksum=checksum,
        size=int(size),
        created_at_ms=int(created_at_ms),
        is_committed=bool(is_committed),
        is_deleted=bool(is_deleted),
    )


def _range_of(prefix: str) -> tuple[str, str]:
    """Return the first key with a prefix, and one after the last."""
    return prefix, prefix + _LAST_CHARACTER
