"""The write routes (docs/reference/http.md 3 and 4)."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from shale.api.app import Route
from shale.api.fields import expiry_from_headers, key_from_path, wants_durable
from shale.api.idempotency import CommittedWrite, IdempotencyCache, idempotency_key
from shale.api.limits import ROW_ELEMENTS, Limits
from shale.api.messages import RawHeader, Request, Response
from shale.api.ops_body import batch_from_body
from shale.api.responses import fields_response, is_msgpack_request
from shale.api.txn_body import TxnRequest, txn_from_body
from shale.engine.db import Db
from shale.engine.write.write_handle import WriteHandle
from shale.env import Env
from shale.errors import ErrorKind, TransactionConflict
from shale.service.access import Role
from shale.service.http.bodies import Body
from shale.service.http.problems import Problem

T = TypeVar("T")

TXN_ATTEMPTS = 8
"""After a conflict the server compares again and retries, as the client would."""

COMPARES_AT_ONCE = 256
"""The most comparisons before other requests run: rows in memory need no wait."""


class WriteRoutes:
    """``put``, ``merge``, ``delete``, ``batch`` and ``txn``.

    Args:
        db: the open database.
        limits: the limits of the port.
        env: clock, randomness, ids and threads.
        max_key_bytes: longer keys are rejected.
        names_max: how many idempotency keys to remember.
    """

    def __init__(self, db: Db, limits: Limits, env: Env, *, max_key_bytes: int, names_max: int) -> None:
        self._db = db
        self._limits = limits
        self._env = env
        self._max_key_bytes = max_key_bytes
        self._repeats = IdempotencyCache(names_max, limits.time_limit)

    def routes(self) -> list[Route]:
        """Return the routes of this group."""
        return [
            Route("kv", {"PUT": self.put, "PATCH": self.merge, "DELETE": self.delete}, Role.WRITE),
            Route("batch", {"POST": self.batch}, Role.WRITE),
            Route("txn", {"POST": self.txn}, Role.WRITE),
        ]

    async def put(self, call: Request) -> Response:
        """Write one row; the body is the value."""
        return await self._value(call, "put")

    async def merge(self, call: Request) -> Response:
        """Add a merge operand; the body is the operand."""
        return await self._value(call, "merge")

    async def delete(self, call: Request) -> Response:
        """Delete one row; succeeds also if it does not exist."""
        call.query()
        key, durable = key_from_path(call.path), wants_durable(call)
        write = partial(self._write, "delete", partial(self._db.delete, key))
        handle = await self._named(call, b"", write)
        return await self._written(handle, durable=durable)

    async def batch(self, call: Request) -> Response:
        """Apply many writes in one commit."""
        call.query()
        packed, durable = is_msgpack_request(call), wants_durable(call)
        with await self._limits.body(call) as body:
            commit = partial(self._commit, body, packed=packed)
            accepted = await self._once(call, body.data, commit)
        return await self._accepted(accepted, durable=durable, packed=packed)

    async def txn(self, call: Request) -> Response:
        """Apply writes atomically if all comparisons hold."""
        call.query()
        packed, durable = is_msgpack_request(call), wants_durable(call)
        with await self._limits.body(call) as body:
            take = partial(
                txn_from_body, packed=packed, max_key_bytes=self._max_key_bytes, max_rows=self._limits.rows_max
            )
            request = await self._limits.decoded(body, take, packed=packed, elements_per_row=2 * ROW_ELEMENTS)
            accepted = await self._once(call, body.data, partial(self._transact, request))
        return await self._accepted(accepted, durable=durable, packed=packed)

    async def _value(self, call: Request, op: str) -> Response:
        if call.scope["query_string"]:
            call.query()
        key, durable, (ttl, expire_at) = key_from_path(call.path), wants_durable(call), expiry_from_headers(call)
        method = self._db.put if op == "put" else self._db.merge
        with await self._limits.body(call) as body:
            value = body.as_bytes()
            write = partial(self._write, op, partial(method, key, value, ttl=ttl, expire_at=expire_at))
            handle = await self._named(call, value, write)
        return await self._written(handle, durable=durable)

    async def _write(self, op: str, write: Callable[[], Coroutine[Any, Any, WriteHandle]]) -> WriteHandle:
        """Write now, or wait for memtable capacity, with a time limit."""
        return await self._limits.written(op, write(), is_full=self._db.status.is_full)

    async def _named(
        self, call: Request, body: bytes | bytearray, write: Callable[[], Awaitable[WriteHandle]]
    ) -> WriteHandle:
        """Write one row, idempotently if the request has a key."""
        name = idempotency_key(call)
        if name is None:
            return await write()

        async def commit() -> CommittedWrite:
            handle = await write()
            return CommittedWrite(handle, 1, handle.seq)

        handle = (await self._repeats.once(name, call, body, commit)).handle
        assert handle is not None
        return handle

    async def _once(
        self, call: Request, body: bytes | bytearray, commit: Callable[[], Awaitable[CommittedWrite]]
    ) -> CommittedWrite:
        name = idempotency_key(call)
        return await (commit() if name is None else self._repeats.once(name, call, body, commit))

    async def _commit(self, body: Body, *, packed: bool) -> CommittedWrite:
        take = partial(
            batch_from_body, packed=packed, max_key_bytes=self._max_key_bytes, max_rows=self._limits.rows_max
        )
        batch = await self._limits.decoded(body, take, packed=packed)
        handle = await self._write("write", partial(self._db.write, batch))
        return CommittedWrite(handle, len(batch), handle.seq)

    async def _transact(self, request: TxnRequest) -> CommittedWrite:
        with self._limits.time_limit("commit the transaction"):
            for attempt in range(TXN_ATTEMPTS):
                try:
                    return await self._limits.timed("write", self._attempt(request))
                except TransactionConflict:
                    if attempt == TXN_ATTEMPTS - 1:
                        raise
        raise AssertionError("every attempt returns or raises")

    async def _attempt(self, request: TxnRequest) -> CommittedWrite:
        async with self._db.transaction("serializable") as transaction:
            failed: list[int] = []
            for place, compare in enumerate(request.compare):
                if not compare.holds(await transaction.get_row(compare.key)):
                    failed.append(place)
                if place % COMPARES_AT_ONCE == COMPARES_AT_ONCE - 1:
                    await anyio.lowlevel.checkpoint()
            if failed:
                raise _compare_failed(failed)
            transaction.write(request.writes)
            handle = await transaction.commit()
            return CommittedWrite(handle, len(request.writes), transaction.seq if handle is None else handle.seq)

    async def _accepted(self, accepted: CommittedWrite, *, durable: bool, packed: bool) -> Response:
        handle = accepted.handle
        fields: dict[str, int] = {"seq": accepted.seq, "rows": accepted.rows}
        if handle is None:
            return fields_response(fields, packed=packed, headers=[(b"x-shale-seq", b"%d" % accepted.seq)])
        if durable:
            await self._durable(handle)
        fields["create_ts"] = handle.create_ts
        return fields_response(fields, packed=packed, headers=_headers(handle))

    async def _written(self, handle: WriteHandle, *, durable: bool) -> Response:
        if durable:
            await self._durable(handle)
        return Response(HTTPStatus.NO_CONTENT, headers=_headers(handle))

    async def _durable(self, handle: WriteHandle) -> None:
        if self._db.status.durable_seq >= handle.seq:
            return
        with anyio.move_on_after(self._limits.time_max_s):
            await handle.durable()
            return
        raise self._limits.timeout_problem(f"make seq {handle.seq} durable; the outcome is unknown")


def _compare_failed(places: list[int]) -> Problem:
    first = f"compare[{places[0]}]" + (f" and {len(places) - 1} more" if len(places) > 1 else "")
    return Problem(
        HTTPStatus.PRECONDITION_FAILED,
        f"{first} does not hold; nothing was written",
        kind=ErrorKind.TRANSACTION.value,
        fields={"failed": places},
    )


def _headers(handle: WriteHandle) -> tuple[RawHeader, RawHeader]:
    return (b"x-shale-seq", b"%d" % handle.seq), (b"x-shale-create-ts", b"%d" % handle.create_ts)
