"""Opens what a command writes rows to: the database itself, or the writer that is running, over HTTP.

A command that opened a database in use would fence and end its writer.  So it looks for a live writer first, in the
manifest that it reads anyway, and writes through its HTTP API.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale.core.lazy_dataclass import dataclass
from shale_cli.commands.kv.row_writer import RowChange, RowCommit, RowWriter
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from shale.client.tls import TlsFiles
    from shale.engine.db import Db
    from shale.engine.write.batch import WriteBatch
    from shale.engine.write.live_writer import LiveWriter

Endpoint = Annotated[
    str | None,
    typer.Option(envvar="SHALE_ENDPOINT", help="Write through this HTTP API of a writer."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="SHALE_TOKEN_FILE", exists=True, dir_okay=False, help="File with the bearer token of the writer."
    ),
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Fence a writer that seems to run.")]

SIGN_LIFETIME = "30s"
"""Lifetime of the sign of life of a command: after a crash the next command need not wait for long."""


@dataclass(frozen=True, slots=True)
class WriterChoice:
    """The options that choose the writer."""

    endpoint: str | None = None
    token_file: Path | None = None
    take_over: bool = False
    dead_epoch: int | None = None
    """The epoch of a writer that is known to be dead, although its sign of life has not expired."""
    tls: "TlsFiles | None" = None

    def token(self) -> str | None:
        """Return the bearer token of the writer; ``None`` without a file.

        Raises:
            InvalidRequestError: the file holds no token.
        """
        from shale.client.authorization import token_of_file

        return None if self.token_file is None else token_of_file(self.token_file)


class DirectWriter:
    """This process is the writer."""

    rows_at_once = 1000

    def __init__(self, db: "Db") -> None:
        self._db = db

    @property
    def epoch(self) -> int | None:
        """See ``RowWriter``."""
        return self._db.status.writer_epoch

    async def is_stored(self, row: RowChange) -> bool:
        """See ``RowWriter``."""
        stored = await self._db.get_row(row.key)
        return stored is not None and (stored.value, stored.expire_ts) == (row.value, row.expire_ms)

    async def write(self, changes: Sequence[RowChange]) -> RowCommit:
        """See ``RowWriter``."""
        return await self._db.write(add_changes(self._db.new_batch(), changes))

    async def scan_keys(self, prefix: bytes) -> AsyncIterator[list[bytes]]:
        """See ``RowWriter``."""
        async for rows in self._db.scan(prefix=prefix).batches(self.rows_at_once):
            yield [row.key for row in rows]


@asynccontextmanager
async def open_row_writer(
    session: CliSession, choice: WriterChoice, *, create_if_missing: bool = True, **settings: Any
) -> AsyncIterator[RowWriter]:
    """Open the database, or a connection to its live writer.

    Args:
        session: the database.
        choice: the options of the command.
        create_if_missing: whether a new database is created if there is none.
        settings: further options of ``Db.open``, for a database that this process opens.

    Raises:
        LiveWriter: a writer seems to be alive, and nothing can be written through it.
        InvalidRequestError: ``--endpoint`` and ``--take-over`` are both given.
    """
    from shale.engine.db import Db
    from shale.engine.write.live_writer import LiveWriter
    from shale.errors import InvalidRequestError

    if choice.endpoint is not None and choice.take_over:
        raise InvalidRequestError("give either --endpoint (SHALE_ENDPOINT) or --take-over")
    settings.setdefault("writer_checkpoint_lifetime", SIGN_LIFETIME)
    settings |= {**session.writer_args, "create_if_missing": create_if_missing}
    async with AsyncExitStack() as stack:
        writer: RowWriter
        if choice.endpoint is not None:
            writer = await stack.enter_async_context(_connection(session, choice, choice.endpoint))
        else:
            try:
                db = await stack.enter_async_context(Db.open(**settings, take_over=choice.take_over))
                writer = DirectWriter(db)
            except LiveWriter as error:
                if error.status.epoch == choice.dead_epoch:
                    writer = DirectWriter(await stack.enter_async_context(Db.open(**settings)))
                else:
                    writer = await stack.enter_async_context(_connection_to(session, choice, error))
        yield writer


def add_changes(batch: "WriteBatch", changes: Iterable[RowChange]) -> "WriteBatch":
    """Add changes to a batch, which checks them.

    Raises:
        InvalidRequestError: an impossible key, value or lifetime.
    """
    for key, value, expire_ms, ttl in changes:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value, ttl=ttl, expire_at=expire_ms)
    return batch


@asynccontextmanager
async def _connection(session: CliSession, choice: WriterChoice, url: str) -> AsyncIterator[RowWriter]:
    from shale.client.client import Client
    from shale_cli.commands.kv.http_writer import HttpWriter

    async with Client(url, token=choice.token(), env=session.env, **(choice.tls or {})) as client:
        yield HttpWriter(client)


@asynccontextmanager
async def _connection_to(session: CliSession, choice: WriterChoice, found: "LiveWriter") -> AsyncIterator[RowWriter]:
    from shale_cli.commands.kv.http_writer import require_same_writer

    identity = found.status.identity
    url = None if identity is None else identity.endpoint
    await require_same_writer(session, found, url, choice.token(), choice.tls or {})
    assert url is not None
    session.output.note(f"writing through the writer at {url}")
    async with _connection(session, choice, url) as writer:
        yield writer
