"""Commit records in a SQLite file, for several processes on one machine."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import anyio.to_thread

from shale.errors import CorruptionError, InvalidRequestError, UnavailableError
from shale.store.transactional.port import NO_TABLES
from shale.store.transactional.sql import SQLITE, SqlTransactionalStore, Transaction

T = TypeVar("T")

_BUSY_S = 5.0


class SqliteTransactionalStore(SqlTransactionalStore):
    """The database ``sqlite:///<absolute path>``, on a local disk: network file systems break its locks."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.is_absolute():
            raise InvalidRequestError(f"{path}: the file of a transactional store is an absolute path")
        super().__init__(f"sqlite://{self._path}", SQLITE)
        self._limiter: anyio.CapacityLimiter | None = None
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """The identity of the file that is open."""

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``.  Creates no file."""
        if not self._path.exists():
            return None
        return await super().schema_version()

    async def create_schema(self) -> None:
        """See ``TransactionalStore``."""
        await self._in_thread(self._create_file)
        await super().create_schema()

    async def execute(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        return await self._in_thread(lambda: self._run(start()))

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        await self._in_thread(self._close)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run calls one after the other; those that wait need no thread, which others could use."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _create_file(self) -> None:
        try:
            if not self._path.exists():
                self._path.touch()
        except OSError as error:
            raise UnavailableError(f"{self.url}: {error.strerror}") from error

    def _run(self, transaction: Transaction[T]) -> T:
        try:
            connection = self._connect()
            # The write lock at once: a transaction that took it later would fail instead of waiting.
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = _run_on(connection, transaction)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            raise _translated(error, self.url) from error
        return result

    def _connect(self) -> sqlite3.Connection:
        """Open the file, again if another one has its name: other processes write there."""
        file = self._identity()
        if self._file != file:
            self._close()
        if self._connection is None:
            url = f"file:{quote(str(self._path))}?mode=rw"  # a file that is gone is restored, not made anew
            connection = sqlite3.connect(url, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=True)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")  # a commit survives a power failure
            except sqlite3.DatabaseError:
                connection.close()
                raise
            self._connection, self._file = connection, file
        return self._connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _run_on(connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
    try:
        statement, values = next(transaction)
        while True:
            statement, values = transaction.send(connection.execute(statement, values).fetchall())
    except StopIteration as ended:
        result: T = ended.value
        return result


def _translated(error: sqlite3.DatabaseError, url: str) -> Exception:
    message = str(error)
    if "no such table" in message:
        return InvalidRequestError(f"{url}: {NO_TABLES}")
    if isinstance(error, sqlite3.OperationalError):
        return UnavailableError(f"{url}: {message}")
    if "not a database" in message:
        return InvalidRequestError(f"{url}: {message}")
    return CorruptionError(message, path=url)
