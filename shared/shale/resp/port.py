"""The Redis port of a daemon, if its settings ask for one."""

import contextlib
import socket
from collections.abc import AsyncIterator

from pydantic import SecretStr

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.resp.options import RespOptions
from shale.resp.server import serving_resp
from shale.resp.settings import RespSection
from shale.service.http_server import open_socket
from shale.telemetry.metrics import Metrics

_DEFAULTS = RespOptions()


def resp_socket(resp: RespSection) -> contextlib.AbstractContextManager[socket.socket | None]:
    """The bound port, or nothing where it is switched off; raises as ``open_socket`` does."""
    return open_socket(resp.host, resp.port, setting="resp.port") if resp.enabled else contextlib.nullcontext()


@contextlib.asynccontextmanager
async def serving_port(
    db: Db | DbReader,
    listener: socket.socket | None,
    env: Env,
    metrics: Metrics,
    resp: RespSection,
    *,
    http_token: SecretStr | None,
    drain_timeout_s: float,
    max_key_bytes: int = _DEFAULTS.max_key_bytes,
) -> AsyncIterator[dict[str, int]]:
    """Serve what ``resp_socket`` gave until the block ends; gives the port's number for the log."""
    if listener is None:
        yield {}
        return
    port = listener.getsockname()[1]
    options, token = resp.options(max_key_bytes=max_key_bytes), resp.token(http_token)
    async with serving_resp(db, listener, env, metrics, options, token=token, drain_timeout_s=drain_timeout_s):
        yield {"resp_port": port}
