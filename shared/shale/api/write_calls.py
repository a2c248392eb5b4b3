"""The calls that write, on an open database (docs/operations.md 4)."""

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from shale.api.answers import table_answer
from shale.api.app import Route
from shale.api.batch_body import decode_batch
from shale.api.fields import key_in_path, ttl_s, wants_durable
from shale.api.limits import Limits
from shale.api.repeats import Accepted, Repeats, batch_name
from shale.engine.db import Db
from shale.engine.write_handle import WriteHandle
from shale.env import Env
from shale.service.bodies import is_msgpack

LARGE_BODY_BYTES = 128 * 1024
"""Larger bodies are decoded in a thread, so that other requests are not kept waiting."""


class WriteCalls:
    """``put``, ``delete`` and ``batch``.

    Args:
        db: what is written.
        limits: of the port.
        env: the outside world.
        max_key_bytes: longer keys are refused.
        names_max: how many names of batches are remembered.
    """

    def __init__(self, db: Db, limits: Limits, env: Env, *, max_key_bytes: int, names_max: int) -> None:
        self._db = db
        self._limits = limits
        self._env = env
        self._max_key_bytes = max_key_bytes
        self._repeats = Repeats(names_max)

    def routes(self) -> list[Route]:
        """What to serve."""
        return [Route("kv", {"PUT": self.put, "DELETE": self.delete}), Route("batch", {"POST": self.batch})]

    async def put(self, request: Request) -> Response:
        """Write one row; the body is the value."""
        key, durable = key_in_path(request.scope), wants_durable(request)
        ttl = ttl_s(request.headers.get("x-shale-ttl-ms"), "X-Shale-TTL-Ms")
        with await self._limits.body(request) as body, self._limits.in_time("accept the write"):
            handle = await self._limits.timed("put", self._db.put(key, bytes(body.data), ttl=ttl))
        return await self._written(handle, durable=durable)

    async def delete(self, request: Request) -> Response:
        """Delete one row; a missing one is deleted as well."""
        durable = wants_durable(request)
        with self._limits.in_time("accept the write"):
            handle = await self._limits.timed("delete", self._db.delete(key_in_path(request.scope)))
        return await self._written(handle, durable=durable)

    async def batch(self, request: Request) -> Response:
        """Many writes as one."""
        packed, durable, name = is_msgpack(request), wants_durable(request), batch_name(request)
        with await self._limits.body(request) as body:
            commit = partial(self._commit, body.data, packed=packed)
            accepted = await (commit() if name is None else self._repeats.once(name, body.data, commit))
        handle = accepted.handle
        if durable:
            await self._durable(handle)
        fields = {"seq": handle.seq, "create_ts": handle.create_ts, "rows": accepted.rows}
        return table_answer(fields, packed=packed, headers=_headers(handle))

    async def _commit(self, body: bytearray, *, packed: bool) -> Accepted:
        work = partial(
            decode_batch, body, packed=packed, max_key_bytes=self._max_key_bytes, max_rows=self._limits.rows_max
        )
        batch = await self._env.cpu.run(work) if len(body) > LARGE_BODY_BYTES else work()
        with self._limits.in_time("accept the batch"):
            handle = await self._limits.timed("write", self._db.write(batch))
        return Accepted(handle, len(batch))

    async def _written(self, handle: WriteHandle, *, durable: bool) -> Response:
        if durable:
            await self._durable(handle)
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(handle))

    async def _durable(self, handle: WriteHandle) -> None:
        with self._limits.in_time(f"make seq {handle.seq} durable; its outcome is unknown"):
            await handle.durable()


def _headers(handle: WriteHandle) -> dict[str, str]:
    return {"X-Shale-Seq": str(handle.seq), "X-Shale-Create-Ts": str(handle.create_ts)}
