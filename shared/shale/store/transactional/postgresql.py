"""Commit records in PostgreSQL."""

from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.location import without_credentials
from shale.store.transactional.sql import POSTGRESQL, SqlTransactionalStore, Transaction, run_on

T = TypeVar("T")

_CONNECTIONS_MAX = 8
_CONNECT_S = 10.0


class PostgresqlTransactionalStore(SqlTransactionalStore):
    """The database ``postgresql://user:password@host:port/name?options``."""

    def __init__(self, url: str) -> None:
        super().__init__(without_credentials(url), POSTGRESQL)
        self._pool = AsyncConnectionPool(
            url, min_size=0, max_size=_CONNECTIONS_MAX, timeout=_CONNECT_S, open=False, name="shale-cas"
        )

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        try:
            return await super().schema_version()
        except InvalidRequestError:  # no such table
            return None

    async def run(self, start: Callable[[], Transaction[T]]) -> T:
        """See ``SqlTransactionalStore``."""
        try:
            await self._pool.open()
            async with self._pool.connection() as connection, connection.cursor() as cursor:
                return await run_on(cursor, start())
        except psycopg.errors.UndefinedTable as error:
            raise InvalidRequestError(
                f"{self.url}: there are no tables of commit records: run 'shale cas init'"
            ) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise UnavailableError(f"{self.url}: {error}") from error

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
        await self._pool.close()
