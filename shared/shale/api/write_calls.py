"""The calls that write, on an open database (docs/http.md 3 and 4)."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import anyio

from shale.api.answers import is_packed, table_answer
from shale.api.app import Route
from shale.api.call import Answer, Call, RawHeader
from shale.api.fields import key_in_path, life_in_headers, wants_durable
from shale.api.limits import Limits
from shale.api.ops_body import decode_batch
from shale.api.repeats import Accepted, Repeats, write_name
from shale.api.txn_body import TxnRequest, decode_txn
from shale.engine.db import Db
from shale.engine.write_handle import WriteHandle
from shale.env import Env
from shale.errors import ErrorKind, TransactionConflict
from shale.service.problems import Problem

T = TypeVar("T")

LARGE_BODY_BYTES = 128 * 1024
"""Larger bodies are decoded in a thread, so that other requests are not kept waiting."""
TXN_ATTEMPTS = 8
"""A transaction that meets a conflict is compared anew: its client would do nothing else."""


class WriteCalls:
    """``put``, ``merge``, ``delete``, ``batch`` and ``txn``.

    Args:
        db: what is written.
        limits: of the port.
        env: the outside world.
        max_key_bytes: longer keys are refused.
        names_max: how many names of writes are remembered.
    """

    def __init__(self, db: Db, limits: Limits, env: Env, *, max_key_bytes: int, names_max: int) -> None:
        self._db = db
        self._limits = limits
        self._env = env
        self._max_key_bytes = max_key_bytes
        self._repeats = Repeats(names_max, limits.in_time)

    def routes(self) -> list[Route]:
        """What to serve."""
        return [
            Route("kv", {"PUT": self.put, "PATCH": self.merge, "DELETE": self.delete}),
            Route("batch", {"POST": self.batch}),
            Route("txn", {"POST": self.txn}),
        ]

    async def put(self, call: Call) -> Answer:
        """Write one row; the body is the value."""
        return await self._value(call, "put")

    async def merge(self, call: Call) -> Answer:
        """Add an operand for the merge operator; the body is the operand."""
        return await self._value(call, "merge")

    async def delete(self, call: Call) -> Answer:
        """Delete one row; a missing one is deleted as well."""
        call.query()
        key, durable = key_in_path(call.path), wants_durable(call)
        write = partial(self._write, "delete", partial(self._db.delete, key))
        handle = await self._named(call, b"", write)
        return await self._written(handle, durable=durable)

    async def batch(self, call: Call) -> Answer:
        """Many writes as one."""
        call.query()
        packed, durable = is_packed(call), wants_durable(call)
        with await self._limits.body(call) as body:
            commit = partial(self._commit, body.data, packed=packed)
            accepted = await self._once(call, body.data, commit)
        return await self._accepted(accepted, durable=durable, packed=packed)

    async def txn(self, call: Call) -> Answer:
        """Writes that happen if what the client expects is so, all or nothing."""
        call.query()
        packed, durable = is_packed(call), wants_durable(call)
        with await self._limits.body(call) as body:
            decode = partial(
                decode_txn, packed=packed, max_key_bytes=self._max_key_bytes, max_rows=self._limits.rows_max
            )
            request = await self._decoded(decode, body.data)
            accepted = await self._once(call, body.data, partial(self._transact, request))
        return await self._accepted(accepted, durable=durable, packed=packed)

    async def _value(self, call: Call, op: str) -> Answer:
        if call.scope["query_string"]:
            call.query()
        key, durable, (ttl, expire_at) = key_in_path(call.path), wants_durable(call), life_in_headers(call)
        method = self._db.put if op == "put" else self._db.merge
        with await self._limits.body(call) as body:
            value = bytes(body.data)
            if not self._db.is_full and not call.has(b"idempotency-key"):  # the usual case, without detours
                handle = await self._limits.timed(op, method(key, value, ttl=ttl, expire_at=expire_at))
            else:
                write = partial(self._write, op, partial(method, key, value, ttl=ttl, expire_at=expire_at))
                handle = await self._named(call, value, write)
        return await self._written(handle, durable=durable)

    async def _write(self, op: str, write: Callable[[], Awaitable[WriteHandle]]) -> WriteHandle:
        """Do it now, or wait for room in memory first, for a while."""
        if not self._db.is_full:
            return await self._limits.timed(op, write())
        with self._limits.in_time("accept the write"):
            return await self._limits.timed(op, write())

    async def _named(
        self, call: Call, body: bytes | bytearray, write: Callable[[], Awaitable[WriteHandle]]
    ) -> WriteHandle:
        """Write one row, once under its name."""
        name = write_name(call)
        if name is None:
            return await write()

        async def commit() -> Accepted:
            handle = await write()
            return Accepted(handle, 1, handle.seq)

        handle = (await self._repeats.once(name, call, body, commit)).handle
        assert handle is not None
        return handle

    async def _once(self, call: Call, body: bytes | bytearray, commit: Callable[[], Awaitable[Accepted]]) -> Accepted:
        name = write_name(call)
        return await (commit() if name is None else self._repeats.once(name, call, body, commit))

    async def _commit(self, body: bytes | bytearray, *, packed: bool) -> Accepted:
        decode = partial(decode_batch, packed=packed, max_key_bytes=self._max_key_bytes, max_rows=self._limits.rows_max)
        batch = await self._decoded(decode, body)
        handle = await self._write("write", partial(self._db.write, batch))
        return Accepted(handle, len(batch), handle.seq)

    async def _decoded(self, decode: Callable[[bytes | bytearray], T], body: bytes | bytearray) -> T:
        return await self._env.cpu.run(partial(decode, body)) if len(body) > LARGE_BODY_BYTES else decode(body)

    async def _transact(self, request: TxnRequest) -> Accepted:
        with self._limits.in_time("commit the transaction"):
            for attempt in range(TXN_ATTEMPTS):
                try:
                    return await self._limits.timed("write", self._attempt(request))
                except TransactionConflict:
                    if attempt == TXN_ATTEMPTS - 1:
                        raise
        raise AssertionError("every attempt returns or raises")

    async def _attempt(self, request: TxnRequest) -> Accepted:
        async with self._db.transaction("serializable") as transaction:
            failed = [
                place
                for place, compare in enumerate(request.compare)
                if not compare.holds(await transaction.get_row(compare.key))
            ]
            if failed:
                raise _compare_failed(failed)
            transaction.write(request.writes)
            handle = await transaction.commit()
            return Accepted(handle, len(request.writes), transaction.seq if handle is None else handle.seq)

    async def _accepted(self, accepted: Accepted, *, durable: bool, packed: bool) -> Answer:
        handle = accepted.handle
        fields: dict[str, int] = {"seq": accepted.seq, "rows": accepted.rows}
        if handle is None:
            return table_answer(fields, packed=packed, headers=[(b"x-shale-seq", b"%d" % accepted.seq)])
        if durable:
            await self._durable(handle)
        fields["create_ts"] = handle.create_ts
        return table_answer(fields, packed=packed, headers=_headers(handle))

    async def _written(self, handle: WriteHandle, *, durable: bool) -> Answer:
        if durable:
            await self._durable(handle)
        return Answer(HTTPStatus.NO_CONTENT, headers=_headers(handle))

    async def _durable(self, handle: WriteHandle) -> None:
        if self._db.durable_seq >= handle.seq:
            return
        with anyio.move_on_after(self._limits.time_max_s):
            await handle.durable()
            return
        raise self._limits.too_late(f"make seq {handle.seq} durable; its outcome is unknown")


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
