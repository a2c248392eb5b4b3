"""What each call of the network interface does (docs/operations.md 4)."""

from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import anyio
import msgpack
import orjson
from starlette.requests import Request
from starlette.responses import Response

from shale.engine.db import Db
from shale.engine.write_handle import WriteHandle
from shale.env import Env
from shale.errors import ErrorKind
from shale.service.bodies import JSON, MSGPACK, BodyBudget, decode, is_msgpack
from shale.service.latency import Latency
from shale.service.problems import Problem, bad_request, busy, too_large
from shale.telemetry.metrics import Metrics
from shale_writer.batch_body import decode_batch
from shale_writer.fields import binary, key_in_path, known_only, to_base64, ttl_s, wants_durable
from shale_writer.repeats import Accepted, Repeats, batch_name
from shale_writer.scan_stream import LineStream, scan_lines, scan_request
from shale_writer.settings import WriterSettings

T = TypeVar("T")

LARGE_BODY_BYTES = 128 * 1024
"""Larger bodies are decoded in a thread, so that other requests are not kept waiting."""


class Handlers:
    """The calls, on one open database."""

    def __init__(self, db: Db, env: Env, metrics: Metrics, settings: WriterSettings) -> None:
        self._db = db
        self._env = env
        self._http = http = settings.http
        self._max_key_bytes = settings.max_key_bytes
        self._repeats = Repeats(http.max_idempotency_keys)
        self._latency = Latency(env, settings.metrics.sample_rate)
        self._seconds = {
            op: metrics.histogram("slatedb_db_request_duration_seconds", op=op)
            for op in ("get", "put", "delete", "write", "scan")
        }
        self._budget = BodyBudget(http.max_inflight_bytes, http.max_body_bytes, silence_max_s=http.request_timeout)

    async def get(self, request: Request) -> Response:
        """One row."""
        row = await self._timed("get", self._db.get_row(key_in_path(request.scope)))
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, "there is no such key", kind=ErrorKind.DATA.value)
        headers = {"X-Shale-Seq": str(row.seq)}
        if row.create_ts is not None:
            headers["X-Shale-Create-Ts"] = str(row.create_ts)
        if row.expire_ts is not None:
            headers["X-Shale-Expire-Ts"] = str(row.expire_ts)
        return Response(row.value, headers=headers, media_type="application/octet-stream")

    async def put(self, request: Request) -> Response:
        """Write one row; the body is the value."""
        key, durable = key_in_path(request.scope), wants_durable(request)
        ttl = ttl_s(request.headers.get("x-shale-ttl-ms"), "X-Shale-TTL-Ms")
        with await self._budget.read(request) as body, self._limit("accept the write"):
            handle = await self._timed("put", self._db.put(key, bytes(body.data), ttl=ttl))
        return await self._written(handle, durable=durable)

    async def delete(self, request: Request) -> Response:
        """Delete one row; a missing one is deleted as well."""
        durable = wants_durable(request)
        with self._limit("accept the write"):
            handle = await self._timed("delete", self._db.delete(key_in_path(request.scope)))
        return await self._written(handle, durable=durable)

    async def batch(self, request: Request) -> Response:
        """Many writes as one."""
        packed, durable, name = is_msgpack(request), wants_durable(request), batch_name(request)
        with await self._budget.read(request) as body:
            commit = partial(self._commit, body.data, packed=packed)
            accepted = await (commit() if name is None else self._repeats.once(name, body.data, commit))
        handle = accepted.handle
        if durable:
            await self._durable(handle)
        fields = {"seq": handle.seq, "create_ts": handle.create_ts, "rows": accepted.rows}
        return _answer(fields, packed=packed, headers=_headers(handle))

    async def _commit(self, body: bytearray, *, packed: bool) -> Accepted:
        work = partial(
            decode_batch,
            body,
            packed=packed,
            max_key_bytes=self._max_key_bytes,
            max_rows=self._http.max_batch_rows,
        )
        batch = await self._env.cpu.run(work) if len(body) > LARGE_BODY_BYTES else work()
        with self._limit("accept the batch"):
            handle = await self._timed("write", self._db.write(batch))
        return Accepted(handle, len(batch))

    async def get_many(self, request: Request) -> Response:
        """Many rows in one trip, in the order of the keys."""
        packed = is_msgpack(request)
        with await self._budget.read(request) as body:
            fields = decode(body.data, packed=packed)
        known_only(fields, frozenset({"keys"}))
        wanted = fields.get("keys")
        if not isinstance(wanted, list | tuple):
            raise bad_request("keys: a list of keys is required")
        if len(wanted) > self._http.max_batch_rows:
            raise too_large(f"keys: {len(wanted)} keys; at most {self._http.max_batch_rows} are taken")
        keys = [binary(key, f"keys[{place}]", packed=packed) for place, key in enumerate(wanted)]
        values = await self._db.get_many(keys)
        if packed:
            return _answer({"values": values}, packed=True)
        texts = [to_base64(value).decode() if value is not None else None for value in values]
        return _answer({"values": texts}, packed=False)

    async def scan(self, request: Request) -> Response:
        """A range of rows, streamed."""
        with await self._budget.read(request) as body:
            fields = decode(body.data or bytearray(b"{}"), packed=False)
        wanted = scan_request(fields)
        lines = scan_lines(self._db, wanted)
        first = await self._timed("scan", anext(lines))
        return LineStream(first, lines)

    async def _timed(self, op: str, call: Awaitable[T]) -> T:
        return await self._latency.of(self._seconds[op], call)

    async def _written(self, handle: WriteHandle, *, durable: bool) -> Response:
        if durable:
            await self._durable(handle)
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(handle))

    async def _durable(self, handle: WriteHandle) -> None:
        with self._limit(f"make seq {handle.seq} durable; its outcome is unknown"):
            await handle.durable()

    @contextmanager
    def _limit(self, what: str) -> Iterator[None]:
        """End a wait that takes too long with 503."""
        limit_s = self._http.request_timeout
        try:
            with anyio.fail_after(limit_s):
                yield
        except TimeoutError as error:
            raise busy(f"took more than {limit_s:g} s to {what}") from error


def _headers(handle: WriteHandle) -> dict[str, str]:
    return {"X-Shale-Seq": str(handle.seq), "X-Shale-Create-Ts": str(handle.create_ts)}


def _answer(fields: Mapping[str, object], *, packed: bool, headers: dict[str, str] | None = None) -> Response:
    if packed:
        return Response(msgpack.packb(fields), headers=headers, media_type=MSGPACK)
    return Response(orjson.dumps(fields), headers=headers, media_type=JSON)
