"""Commit records in MySQL or MariaDB."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import asyncmy
from asyncmy.errors import Error, ProgrammingError

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.location import without_credentials
from shale.store.transactional.sql import MYSQL, SqlTransactionalStore, Transaction, run_on

if TYPE_CHECKING:
    from asyncmy.pool import Pool

T = TypeVar("T")

_CONNECTIONS_MAX = 8
_CONNECT_S = 10
_PORT = 3306
_NO_SUCH_TABLE = 1146
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""A second SELECT of a transaction must see what its INSERT met."""


class MysqlTransactionalStore(SqlTransactionalStore):
    """The database ``mysql://user:password@host:port/name``."""

    def __init__(self, url: str) -> None:
        super().__init__(without_credentials(url), MYSQL)
        self._address = urlsplit(url)
        self._pool: Pool | None = None
        self._lock = anyio.Lock()

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        try:
            return await super().schema_version()
        except InvalidRequestError:  # no such table
            return None

    async def run(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        try:
            pool = await self._open()
            async with pool.acquire() as connection:
                return await _commit_on(connection, start())
        except ProgrammingError as error:
            if error.args and error.args[0] == _NO_SUCH_TABLE:
                raise InvalidRequestError(
                    f"{self.url}: there are no tables of commit records: run 'shale cas init'"
                ) from error
            raise UnavailableError(f"{self.url}: {error}") from error
        except (Error, OSError) as error:
            raise UnavailableError(f"{self.url}: {error}") from error

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
                    port=address.port or _PORT,
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
        await connection.commit()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await connection.rollback()
        raise
    return result
