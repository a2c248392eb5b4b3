"""Commit records in PostgreSQL."""

import logging
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from shale.errors import AccessDenied, InvalidRequestError, UnavailableError
from shale.store.location import without_credentials
from shale.store.transactional.port import NO_TABLES
from shale.store.transactional.sql import POSTGRESQL, SqlTransactionalStore, Transaction, answered, run_on

T = TypeVar("T")

_CONNECTIONS_MAX = 8
_CONNECT_S = 5.0
_REASON_S = 2


class PostgresqlTransactionalStore(SqlTransactionalStore):
    """The database ``postgresql://user:password@host:port/name?options``."""

    def __init__(self, url: str) -> None:
        super().__init__(without_credentials(url), POSTGRESQL)
        _check(url, self.url)
        self._conninfo = url
        # Its warnings repeat what the error says, once for each of its own tries.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        self._pool = AsyncConnectionPool(
            url, min_size=0, max_size=_CONNECTIONS_MAX, timeout=_CONNECT_S, open=False, name="shale-cas"
        )

    async def execute(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        try:
            await self._pool.open()
            async with self._pool.connection() as connection, connection.cursor() as cursor:
                result = await run_on(cursor, start())
                with answered():
                    await connection.commit()
                return result
        except psycopg.errors.UndefinedTable as error:
            raise InvalidRequestError(f"{self.url}: {NO_TABLES}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise AccessDenied(f"{self.url}: {error}") from error
        except psycopg.DataError as error:
            raise InvalidRequestError(f"{self.url}: {error}") from error
        except PoolTimeout as error:
            raise UnavailableError(f"{self.url}: {await self._why_unreachable(error)}") from error
        except (psycopg.Error, PoolClosed, TimeoutError) as error:
            raise UnavailableError(f"{self.url}: {error}") from error

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        await self._pool.close()

    async def _why_unreachable(self, timeout: PoolTimeout) -> str:
        """Connect once outside the pool, which keeps the reason of a failure to itself."""
        try:
            connection = await psycopg.AsyncConnection.connect(self._conninfo, connect_timeout=_REASON_S)
        except psycopg.Error as error:
            return " ".join(str(error).split())
        await connection.close()
        return str(timeout)


def _check(url: str, shown: str) -> None:
    """Check the form of a URL.

    Raises:
        InvalidRequestError: libpq does not understand it, or would take a part of the password for the host, which its
            errors show; nothing of the password is in the message.
    """
    authority, _, rest = url.partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in rest.partition("?")[0]:
        raise InvalidRequestError(f"{shown}: write @ as %40 and / as %2F in the user, the password and the name")
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # What it quotes may be the password.
        problem = str(error).partition('"')[0].strip()
        raise InvalidRequestError(f"{shown}: the URL is not understood: {problem} …") from None
