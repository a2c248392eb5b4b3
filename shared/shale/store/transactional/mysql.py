"""Commit records in MySQL or MariaDB."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import asyncmy
from asyncmy.errors import DataError, Error

from shale.errors import AccessDenied, InvalidRequestError, ShaleError, UnavailableError
from shale.store.location import without_credentials
from shale.store.transactional.port import NO_TABLES
from shale.store.transactional.sql import MYSQL, SqlTransactionalStore, Transaction, answered, run_on

if TYPE_CHECKING:
    from asyncmy.pool import Pool

T = TypeVar("T")

_CONNECTIONS_MAX = 8
_CONNECT_S = 10
_ROLLBACK_S = 2.0
_PORT = 3306
_NO_SUCH_TABLE = 1146
_DENIED = (1044, 1045, 1142, 1143, 1227)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""A second SELECT of a transaction must see what its INSERT met."""


class MysqlTransactionalStore(SqlTransactionalStore):
    """The database ``mysql://user:password@host:port/name``."""

    def __init__(self, url: str) -> None:
        super().__init__(without_credentials(url), MYSQL)
        self._address = urlsplit(url)
        try:
            self._port = self._address.port or _PORT
        except ValueError as error:
            raise InvalidRequestError(f"{self.url}: {error}") from error
        if self._address.query or self._address.fragment:
            raise InvalidRequestError(f"{self.url}: the URL of this store has no options")
        self._pool: Pool | None = None
        self._lock = anyio.Lock()

    async def execute(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        try:
            pool = await self._open()
            with answered():
                connection = await pool.acquire()
            try:
                return await _commit_on(connection, start())
            finally:
                await pool.release(connection)
        except (Error, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> ShaleError:
        code = error.args[0] if error.args else None
        if code == _NO_SUCH_TABLE:
            return InvalidRequestError(f"{self.url}: {NO_TABLES}")
        if code in _DENIED:
            return AccessDenied(f"{self.url}: {error}")
        if isinstance(error, DataError):  # a key that is too long
            return InvalidRequestError(f"{self.url}: {error}")
        return UnavailableError(f"{self.url}: {error}")

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        if self._pool is not None:
            self._pool.close()
            await self._pool.wait_closed()
            self._pool = None

    async def _open(self) -> "Pool":
        async with self._lock:
            if self._pool is None:
                address = self._address
                self._pool = await asyncmy.create_pool(
                    minsize=0,
                    maxsize=_CONNECTIONS_MAX,
                    host=address.hostname or "127.0.0.1",
                    port=self._port,
                    user=unquote(address.username or "root"),
                    password=unquote(address.password or ""),
                    db=unquote(address.path.lstrip("/")),
                    connect_timeout=_CONNECT_S,
                    charset="utf8mb4",
                    init_command=_ISOLATION,
                    autocommit=False,
                )
            return self._pool


async def _commit_on(connection: Any, transaction: Transaction[T]) -> T:
    try:
        async with connection.cursor() as cursor:
            result = await run_on(cursor, transaction)
        with answered():
            await connection.commit()
    except BaseException:
        # A connection whose answer was not awaited is closed, and cannot be rolled back.
        with anyio.move_on_after(_ROLLBACK_S, shield=True), suppress(Error, OSError):
            await connection.rollback()
        raise
    return result
