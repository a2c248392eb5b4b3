"""``Client``: the calls of the network interface as methods, with the library's values and errors."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote_from_bytes

import anyio
import httpx
import msgpack

from shale.client.errors import StateGone
from shale.client.ops import Compare, Ops, Written, life_headers
from shale.client.patience import Patience
from shale.client.scans import MSGPACK, RemoteScan
from shale.engine.batch import BytesLike
from shale.engine.lifetime import Moment, Ttl
from shale.engine.read_point import Durability
from shale.engine.settings_values import Duration, parse_duration_ms
from shale.env import Env
from shale.errors import InvalidRequestError, NotFoundError, UnavailableError
from shale.types import Row

PATH_MAX = 60_000
"""Characters; servers refuse longer ones, each in its way."""
ARROW = "application/vnd.apache.arrow.stream"


class RemoteSnapshot:
    """A snapshot that a server keeps: give it to reads as ``snapshot``.  ``expires_ms`` is since 1970."""

    def __init__(self, client: "Client", fields: Mapping[str, Any], lifetime_ms: int | None) -> None:
        self._client = client
        self._lifetime_ms = lifetime_ms
        self.id: str = fields["id"]
        self.seq: int = fields["seq"]
        self.expires_ms: int = fields["expires_ms"]

    async def renew(self) -> None:
        """Begin its lease anew.

        Raises:
            StateGone: it is over.
        """
        fields = await self._client.call("PUT", f"/v1/snapshots/{self.id}", _lease(self._lifetime_ms))
        self.expires_ms = fields["expires_ms"]

    async def close(self) -> None:
        """Let go of it."""
        await self._client.send("DELETE", f"/v1/snapshots/{self.id}")


class Client:
    """Talks to a writer or a reader.  Use it with ``async with``, or close it.

    Args:
        url: for example ``http://127.0.0.1:8080``.
        token: the bearer token, if the server wants one.
        timeout: for one answer to begin, and between parts of it.
        attempts: of one request at most: answers of 429 and 503 and lost connections are tried again.
        patience: for all attempts of one request together.
        env: the outside world; the real one by default.
        transport: how requests travel; for tests.

    Every method raises the errors that ``Db`` raises for the same condition, and ``UnavailableError`` where no answer
    came: then nobody knows what became of a write.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: Duration = "65s",
        attempts: int = 6,
        patience: Duration = "2m",
        env: Env | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = url
        self._env = env if env is not None else Env.system()
        self._patience = Patience(attempts, parse_duration_ms(patience, name="patience") / 1000, self._env)
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=parse_duration_ms(timeout, name="timeout") / 1000,
            headers={"Authorization": f"Bearer {token}"} if token is not None else None,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: RemoteSnapshot | None = None
    ) -> bytes | None:
        """The value of a key; ``None`` if it has none."""
        row = await self.get_row(key, durability=durability, snapshot=snapshot)
        return None if row is None else row.value

    async def get_row(
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: RemoteSnapshot | None = None
    ) -> Row | None:
        """The value of a key with its place in history; ``None`` if it has none."""
        headers = {"X-Shale-Durability": durability}
        try:
            response = await self.send("GET", _kv(key), headers=headers, params=_query(snapshot))
        except StateGone:
            raise
        except NotFoundError:
            return None
        found = response.headers
        return Row(
            bytes(key),
            response.content,
            int(found["x-shale-seq"]),
            _number(found.get("x-shale-create-ts")),
            _number(found.get("x-shale-expire-ts")),
        )

    async def get_many(
        self, keys: Sequence[BytesLike], *, durability: Durability = "memory", snapshot: RemoteSnapshot | None = None
    ) -> list[bytes | None]:
        """The values of many keys, in the order given, in one trip."""
        fields = await self.call(
            "POST",
            "/v1/get-many",
            {"keys": [bytes(key) for key in keys]},
            headers={"X-Shale-Durability": durability},
            params=_query(snapshot),
        )
        values: list[bytes | None] = fields["values"]
        return values

    async def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Moment | None = None,
        durable: bool = True,
    ) -> Written:
        """Write a value; ``durable``: return once it is in the WAL, and not just readable."""
        return await self._write("PUT", key, bytes(value), life_headers(ttl, expire_at), durable=durable)

    async def merge(
        self,
        key: BytesLike,
        operand: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Moment | None = None,
        durable: bool = True,
    ) -> Written:
        """Add an operand for the database's merge operator."""
        return await self._write("PATCH", key, bytes(operand), life_headers(ttl, expire_at), durable=durable)

    async def delete(self, key: BytesLike, *, durable: bool = True) -> Written:
        """Remove a key, whether or not it is there."""
        return await self._write("DELETE", key, None, {}, durable=durable)

    async def batch(self, ops: Ops, *, durable: bool = True) -> Written:
        """Write all of it as one commit."""
        fields = await self.call("POST", "/v1/batch", {"ops": ops.items}, headers=self._named(durable))
        return Written(fields["seq"], fields.get("create_ts"), fields["rows"])

    async def txn(self, compare: Iterable[Compare], ops: Ops | None = None, *, durable: bool = True) -> Written:
        """Write the operations if all compares hold, all or nothing.

        Raises:
            CompareFailed: one does not hold; or this very transaction was committed by a process that then ended,
                so that an attempt to send it again met its own writes.
            TransactionConflict: others wrote the same all the time.
        """
        body = {"compare": [each.item for each in compare], "ops": ops.items if ops is not None else []}
        fields = await self.call("POST", "/v1/txn", body, headers=self._named(durable))
        return Written(fields["seq"], fields.get("create_ts"), fields["rows"])

    async def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durability: Durability = "memory",
        snapshot: RemoteSnapshot | None = None,
    ) -> AsyncGenerator[Row, None]:
        """Rows by key.  A stream that is cut is gone on with behind its last row.

        Raises:
            StateGone: it was cut, and the state in which it began is gone: scan under a snapshot.
        """
        fields = _range(prefix, start, stop, reverse=reverse, limit=limit)
        headers = {"Accept": MSGPACK, "X-Shale-Durability": durability}
        open_ = partial(self._stream, headers=headers, params=_query(snapshot))
        async with aclosing(RemoteScan(open_, fields, self._patience, anyio.sleep, self._url).rows()) as rows:
            async for row in rows:
                yield row

    async def scan_arrow(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        limit: int | None = None,
        durability: Durability = "memory",
        snapshot: RemoteSnapshot | None = None,
    ) -> Any:
        """The rows as one ``pyarrow.Table``: key, value, seq, create_ts, expire_ts.

        Raises:
            InvalidRequestError: the package pyarrow is missing, here or there.
        """
        from shale.engine.arrow_stream import read_table

        fields = _range(prefix, start, stop, reverse=False, limit=limit)
        headers = {"Accept": ARROW, "X-Shale-Durability": durability}
        response = await self.send("POST", "/v1/scan", fields, headers=headers, params=_query(snapshot))
        table, ending = read_table(response.content)
        if not ending or b'"end":true' not in ending:
            raise UnavailableError(f"{self._url}: the scan ended early: {(ending or b'it was cut').decode()}")
        return table

    @asynccontextmanager
    async def snapshot(
        self, *, lifetime: Duration | None = None, durability: Durability = "memory"
    ) -> AsyncIterator[RemoteSnapshot]:
        """The state of now, kept by the server until the block ends, or the lease does unless it is renewed."""
        lifetime_ms = None if lifetime is None else parse_duration_ms(lifetime, name="lifetime")
        headers = {"X-Shale-Durability": durability}
        snapshot = RemoteSnapshot(
            self, await self.call("POST", "/v1/snapshots", _lease(lifetime_ms), headers=headers), lifetime_ms
        )
        try:
            yield snapshot
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await snapshot.close()

    async def call(self, method: str, path: str, fields: Mapping[str, object], **options: Any) -> Mapping[str, Any]:
        """Send fields and get fields."""
        response = await self.send(method, path, fields, **options)
        answer: Mapping[str, Any] = msgpack.unpackb(response.content)
        return answer

    async def send(
        self,
        method: str,
        path: str,
        fields: Mapping[str, object] | None = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send one request until it has an answer; see ``Patience``."""
        typed = {} if fields is None else {"Content-Type": MSGPACK}
        body = content if fields is None else msgpack.packb(fields)
        send = partial(
            self._http.request, method, path, content=body, headers={**typed, **(headers or {})}, params=params
        )
        return await self._patience.answer(self._url, send)

    async def _write(
        self, method: str, key: BytesLike, content: bytes | None, headers: dict[str, str], *, durable: bool
    ) -> Written:
        response = await self.send(method, _kv(key), content=content, headers={**headers, **self._named(durable)})
        return Written(int(response.headers["x-shale-seq"]), int(response.headers["x-shale-create-ts"]))

    def _named(self, durable: bool) -> dict[str, str]:
        return {
            "Idempotency-Key": str(self._env.ids.ulid()),
            "X-Shale-Durability": "durable" if durable else "memory",
        }

    @asynccontextmanager
    async def _stream(
        self, fields: Mapping[str, object], *, headers: dict[str, str], params: Mapping[str, str] | None
    ) -> AsyncIterator[httpx.Response]:
        headers = {**headers, "Content-Type": MSGPACK}
        request = self._http.build_request(
            "POST", "/v1/scan", content=msgpack.packb(fields), headers=headers, params=params
        )
        response = await self._patience.answer(self._url, partial(self._http.send, request, stream=True))
        try:
            yield response
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


def _kv(key: BytesLike) -> str:
    name = quote_from_bytes(bytes(key), safe="")
    # A path with these as they are would be another one: clients and proxies take dots for a way up.
    path = "/v1/kv/" + (name.replace(".", "%2E") if name in (".", "..") else name)
    if not key or len(path) > PATH_MAX:
        raise InvalidRequestError(
            f"key of {len(key)} bytes: is none, or too long for a path; batch and get_many take longer ones"
        )
    return path


def _query(snapshot: RemoteSnapshot | None) -> dict[str, str] | None:
    return None if snapshot is None else {"snapshot": snapshot.id}


def _lease(lifetime_ms: int | None) -> dict[str, int]:
    return {} if lifetime_ms is None else {"lifetime_ms": lifetime_ms}


def _range(
    prefix: BytesLike | None, start: BytesLike | None, stop: BytesLike | None, *, reverse: bool, limit: int | None
) -> dict[str, object]:
    bounds = {"prefix": prefix, "start": start, "stop": stop}
    fields: dict[str, object] = {name: bytes(bound) for name, bound in bounds.items() if bound is not None}
    if reverse:
        fields["reverse"] = True
    if limit is not None:
        fields["limit"] = limit
    return fields


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
