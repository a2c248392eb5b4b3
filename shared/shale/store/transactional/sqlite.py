"""Commit records in a SQLite file, for several processes on one machine."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from shale.errors import InvalidRequestError, UnavailableError
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
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``.  Creates no file."""
        if not self._path.exists():
            return None
        try:
            return await super().schema_version()
        except InvalidRequestError:  # no such table
            return None

    async def run(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        return await anyio.to_thread.run_sync(lambda: self._run(start()))

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, transaction: Transaction[T]) -> T:
        with self._lock:
            try:
                connection = self._connect()
                # The write lock at once: a transaction that took it later would fail instead of waiting.
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = _run_on(connection, transaction)
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                raise _translated(error, self.url) from error
            return result

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # a commit survives a power failure
            self._connection = connection
        return self._connection


def _run_on(connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
    try:
        statement, values = next(transaction)
        while True:
            statement, values = transaction.send(connection.execute(statement, values).fetchall())
    except StopIteration as ended:
        result: T = ended.value
        return result


def _translated(error: sqlite3.OperationalError, url: str) -> Exception:
    message = str(error)
    if "no such table" in message:
        return InvalidRequestError(f"{url}: there are no tables of commit records: run 'shale cas init'")
    return UnavailableError(f"{url}: {message}")
