"""Writes rows through the HTTP API of a running writer."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from shale.client.client import Client
from shale.client.ops import Ops
from shale.client.tls import TlsFiles
from shale.engine.write.live_writer import LiveWriter
from shale.errors import AccessDenied, ShaleError, UnavailableError
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.framework.session import CliSession

_TIMEOUT = "5s"
_ADVICE = "write through its HTTP API (--endpoint URL), stop it, or replace it with --take-over"
_ADVICE_WITHOUT_HTTP = "it serves no HTTP: write in its program, stop it, or replace it with --take-over"


class DurableCommit(NamedTuple):
    """A commit that is durable."""

    seq: int

    async def durable(self) -> None:
        """Return at once."""


class HttpWriter:
    """A writer in another process."""

    # A commit waits for the WAL, so it takes more rows than a local one, of which several are under way.
    rows_at_once = 10_000

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def epoch(self) -> int | None:
        """See ``RowWriter``."""
        return None

    async def is_stored(self, row: RowChange) -> bool:  # noqa: ARG002
        """Return ``False``: a request per row would take longer than writing the rows again."""
        return False

    async def write(self, changes: Sequence[RowChange]) -> DurableCommit:
        """See ``RowWriter``."""
        ops = Ops()
        for key, value, expire_ms, ttl in changes:
            if value is None:
                ops.delete(key)
            else:
                ops.put(key, value, ttl=ttl, expire_at=expire_ms)
        return DurableCommit((await self._client.batch(ops)).seq)

    async def scan_keys(self, prefix: bytes) -> AsyncIterator[list[bytes]]:
        """See ``RowWriter``."""
        keys: list[bytes] = []
        async for row in self._client.scan(prefix=prefix):
            keys.append(row.key)
            if len(keys) == self.rows_at_once:
                yield keys
                keys = []
        if keys:
            yield keys


async def require_same_writer(
    session: CliSession, found: LiveWriter, url: str | None, token: str | None, tls: TlsFiles
) -> None:
    """Require that the writer that a manifest names answers at its address.

    Another process may have the address by now, and a copy of a database has the manifest of the original.

    Raises:
        LiveWriter: it has no address, does not answer, or another process does.
        AccessDenied: it requires a token.
    """
    if url is None:
        advice = _ADVICE if found.status.identity is None else _ADVICE_WITHOUT_HTTP
        raise LiveWriter(f"{session.location.url}: {found.found}", found.status, advice)
    try:
        async with Client(url, token=token, env=session.env, timeout=_TIMEOUT, attempts=1, **tls) as client:
            fields = (await client.send("GET", "/v1/writer")).json()
    except AccessDenied as error:
        raise AccessDenied(f"{url}: {error}; give --token-file (SHALE_TOKEN_FILE)") from error
    except UnavailableError as error:
        raise _refused(session, found, f"it does not answer: {error}; ") from error
    except (ShaleError, ValueError) as error:
        raise _refused(session, found, f"{url} is another process; ") from error
    identity = found.status.identity
    seen = fields.get("database"), fields.get("epoch"), fields.get("holder")
    if identity is None or seen != (session.location.url, found.status.epoch, identity.holder):
        raise _refused(session, found, f"{url} is the writer of another database, {seen[0]}; ")


def _refused(session: CliSession, found: LiveWriter, reason: str) -> LiveWriter:
    return LiveWriter(f"{session.location.url}: {found.found}", found.status, f"{reason}{_ADVICE}")
