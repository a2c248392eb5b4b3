"""``Client``: the HTTP API as methods, with the values and errors of the library."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, Unpack
from urllib.parse import quote, quote_from_bytes

import anyio
import httpx
import msgpack

from shale.client.answers import fields_in, integer, reading, values_in
from shale.client.authorization import authorization
from shale.client.errors import SnapshotExpired
from shale.client.http_client import LoopNeutralClient
from shale.client.ops import Compare, Ops, WriteResult, expiry_headers
from shale.client.retry import ClientRetryPolicy
from shale.client.scans import MSGPACK, RemoteScan
from shale.client.tls import TlsFiles, client_tls
from shale.core.bytes_like import BytesLike
from shale.core.settings_values import Duration, parse_duration_ms
from shale.core.ttl import Timestamp, Ttl
from shale.core.url_secrets import without_url_secrets
from shale.engine.read.read_point import Durability
from shale.env import Env
from shale.errors import InvalidRequestError, NotFoundError, UnavailableError
from shale.types import Row

PATH_MAX = 60_000
"""Longest path in characters; servers reject longer ones in different ways."""
ARROW = "application/vnd.apache.arrow.stream"


class SnapshotReference(Protocol):
    """A snapshot that a server keeps, as reads take it."""

    @property
    def id(self) -> str:
        """The id that the server gave it."""
        ...


class RemoteSnapshot:
    """A snapshot on the server; pass it to reads as ``snapshot``.  ``expires_ms`` is milliseconds since 1970."""

    def __init__(self, client: "Client", fields: Mapping[str, Any], lifetime_ms: int | None) -> None:
        self._client = client
        self._lifetime_ms = lifetime_ms
        self.id = str(fields["id"])
        self.seq = integer(fields["seq"])
        self.expires_ms = integer(fields["expires_ms"])

    @property
    def _path(self) -> str:
        return f"/v1/snapshots/{quote(self.id, safe='')}"

    async def renew(self) -> None:
        """Renew the lease.

        Raises:
            SnapshotExpired: the lease has expired.
        """
        fields = await self._client.call("PUT", self._path, _lease(self._lifetime_ms))
        with self._client._reading():
            self.expires_ms = integer(fields["expires_ms"])

    async def close(self) -> None:
        """Close the snapshot."""
        await self._client.send("DELETE", self._path)


class Client:
    """A client of a writer or a reader.  Use it with ``async with``, or close it.

    Args:
        url: for example ``http://127.0.0.1:8080``.
        token: the bearer token, if the server requires one.
        timeout: time limit for a response to start, and between parts of it.
        attempts: most attempts of one request; 429, 503 and lost connections are retried.
        total_timeout: time limit for all attempts of one request.
        env: clock, randomness, ids and threads; by default those of the system.
        transport: the HTTP transport; for tests.
        tls: ``ca_file``, ``cert_file`` and ``key_file``, for ``https`` (``TlsFiles``).

    Every method raises the errors that ``Db`` raises for the same condition, and ``UnavailableError`` without a
    response of Shale: then the outcome of a write is unknown.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: Duration = "65s",
        attempts: int = 6,
        total_timeout: Duration = "2m",
        env: Env | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        **tls: Unpack[TlsFiles],
    ) -> None:
        self._url = without_url_secrets(url)
        self._env = env if env is not None else Env.system()
        self._retry_policy = ClientRetryPolicy(
            attempts,
            parse_duration_ms(total_timeout, name="total_timeout") / 1000,
            self._env,
        )
        timeout_s = parse_duration_ms(timeout, name="timeout") / 1000
        headers = authorization(token)
        try:
            self._http = LoopNeutralClient(
                base_url=url,
                timeout=timeout_s,
                headers=headers,
                transport=transport,
                verify=client_tls(**tls),
            )
        except httpx.InvalidURL:  # its text may be a part of the URL
            raise InvalidRequestError(f"{self._url} is not a URL such as http://127.0.0.1:8080") from None

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
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: SnapshotReference | None = None
    ) -> bytes | None:
        """Read the value of a key; ``None`` if the key does not exist."""
        row = await self.get_row(key, durability=durability, snapshot=snapshot)
        return None if row is None else row.value

    async def get_row(
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: SnapshotReference | None = None
    ) -> Row | None:
        """Read the value of a key with its sequence number and times; ``None`` if the key does not exist."""
        headers = {"X-Shale-Durability": durability}
        try:
            response = await self.send("GET", _kv(key), headers=headers, params=_query(snapshot))
        except SnapshotExpired:
            raise
        except NotFoundError:
            return None
        found = response.headers
        with self._reading():
            return Row(
                bytes(key),
                response.content,
                integer(found["x-shale-seq"]),
                _number(found.get("x-shale-create-ts")),
                _number(found.get("x-shale-expire-ts")),
            )

    async def get_many(
        self, keys: Sequence[BytesLike], *, durability: Durability = "memory", snapshot: SnapshotReference | None = None
    ) -> list[bytes | None]:
        """Read the values of many keys in one request, in the order of ``keys``."""
        fields = await self.call(
            "POST",
            "/v1/get-many",
            {"keys": [bytes(key) for key in keys]},
            headers={"X-Shale-Durability": durability},
            params=_query(snapshot),
        )
        with self._reading():
            return values_in(fields, len(keys))

    async def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Timestamp | None = None,
        durable: bool = True,
    ) -> WriteResult:
        """Write a value; with ``durable``, return when it is in the WAL, otherwise when it is readable."""
        return await self._write("PUT", key, bytes(value), expiry_headers(ttl, expire_at), durable=durable)

    async def merge(
        self,
        key: BytesLike,
        operand: BytesLike,
        *,
        ttl: Ttl = None,
        expire_at: Timestamp | None = None,
        durable: bool = True,
    ) -> WriteResult:
        """Add an operand for the merge operator of the database."""
        return await self._write("PATCH", key, bytes(operand), expiry_headers(ttl, expire_at), durable=durable)

    async def delete(self, key: BytesLike, *, durable: bool = True) -> WriteResult:
        """Delete a key; succeeds also if it does not exist."""
        return await self._write("DELETE", key, None, {}, durable=durable)

    async def batch(self, ops: Ops, *, durable: bool = True) -> WriteResult:
        """Apply all operations in one commit."""
        fields = await self.call("POST", "/v1/batch", {"ops": ops.items}, headers=self._named(durable))
        return self._result(fields)

    async def txn(self, compare: Iterable[Compare], ops: Ops | None = None, *, durable: bool = True) -> WriteResult:
        """Apply the operations atomically if all comparisons hold.

        Raises:
            CompareFailed: a comparison does not hold.  It is also raised if the first attempt was committed by a
                process that then ended, because the retry compares with its own writes.
            TransactionConflict: conflicts with concurrent writes persisted.
        """
        body = {"compare": [each.item for each in compare], "ops": ops.items if ops is not None else []}
        fields = await self.call("POST", "/v1/txn", body, headers=self._named(durable))
        return self._result(fields)

    async def scan(
        self,
        *,
        prefix: BytesLike | None = None,
        start: BytesLike | None = None,
        stop: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durability: Durability = "memory",
        snapshot: SnapshotReference | None = None,
    ) -> AsyncGenerator[Row, None]:
        """Yield rows in key order.  An interrupted stream resumes after its last row.

        Raises:
            SnapshotExpired: the stream was interrupted, and its state is gone; scan a snapshot instead.
        """
        fields = _range(prefix, start, stop, reverse=reverse, limit=limit)
        headers = {"Accept": MSGPACK, "X-Shale-Durability": durability}
        open_ = partial(self._stream, headers=headers, params=_query(snapshot))
        async with aclosing(RemoteScan(open_, fields, self._retry_policy, anyio.sleep, self._url).rows()) as rows:
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
        snapshot: SnapshotReference | None = None,
    ) -> Any:
        """Read rows as one ``pyarrow.Table``: key, value, seq, create_ts, expire_ts.

        Raises:
            InvalidRequestError: the package pyarrow is not installed in this process or on the server.
        """
        from shale.engine.arrow.stream import read_table

        fields = _range(prefix, start, stop, reverse=False, limit=limit)
        headers = {"Accept": ARROW, "X-Shale-Durability": durability}
        response = await self.send("POST", "/v1/scan", fields, headers=headers, params=_query(snapshot))
        with self._reading():
            table, ending = read_table(response.content)
        if not ending or b'"end":true' not in ending:
            reason = (ending or b"the stream was interrupted").decode(errors="replace")
            raise UnavailableError(f"{self._url}: the scan ended early: {reason}")
        return table

    @asynccontextmanager
    async def snapshot(
        self, *, lifetime: Duration | None = None, durability: Durability = "memory"
    ) -> AsyncIterator[RemoteSnapshot]:
        """Open a snapshot of the current state; it is closed when the block ends, or when its lease expires."""
        lifetime_ms = None if lifetime is None else parse_duration_ms(lifetime, name="lifetime")
        headers = {"X-Shale-Durability": durability}
        fields = await self.call("POST", "/v1/snapshots", _lease(lifetime_ms), headers=headers)
        with self._reading():
            snapshot = RemoteSnapshot(self, fields, lifetime_ms)
        try:
            yield snapshot
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await snapshot.close()

    async def call(self, method: str, path: str, fields: Mapping[str, object], **options: Any) -> Mapping[str, Any]:
        """Send a request with fields and return the fields of the response."""
        response = await self.send(method, path, fields, **options)
        with self._reading():
            return fields_in(response.content)

    def _reading(self) -> AbstractContextManager[None]:
        """Translate what fails while an answer of this client's server is read; see ``answers.reading``."""
        return reading(self._url)

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
        """Send one request with retries; see ``ClientRetryPolicy``."""
        typed = {} if fields is None else {"Content-Type": MSGPACK}
        body = content if fields is None else msgpack.packb(fields)
        send = partial(
            self._http.request, method, path, content=body, headers={**typed, **(headers or {})}, params=params
        )
        return await self._retry_policy.request(self._url, send)

    async def _write(
        self, method: str, key: BytesLike, content: bytes | None, headers: dict[str, str], *, durable: bool
    ) -> WriteResult:
        response = await self.send(method, _kv(key), content=content, headers={**headers, **self._named(durable)})
        found = response.headers
        with self._reading():
            return WriteResult(integer(found["x-shale-seq"]), integer(found["x-shale-create-ts"]))

    def _result(self, fields: Mapping[str, Any]) -> WriteResult:
        with self._reading():
            create_ts = fields.get("create_ts")
            return WriteResult(
                integer(fields["seq"]), None if create_ts is None else integer(create_ts), integer(fields["rows"])
            )

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
        response = await self._retry_policy.request(self._url, partial(self._http.send, request, stream=True))
        try:
            yield response
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


def client_without_repeats(url: str, **options: Any) -> Client:
    """Return a client that sends a request again only after 429, when nothing was done; takes the same options."""
    client = Client(url, **options)
    client._retry_policy = replace(client._retry_policy, repeat_unanswered=False)
    return client


def _kv(key: BytesLike) -> str:
    name = quote_from_bytes(bytes(key), safe="")
    # Clients and proxies resolve the path segments "." and "..", so these keys must be encoded.
    path = "/v1/kv/" + (name.replace(".", "%2E") if name in (".", "..") else name)
    if not key or len(path) > PATH_MAX:
        raise InvalidRequestError(
            f"key of {len(key)} bytes: it is empty, or too long for a path; batch and get_many accept longer keys"
        )
    return path


def _query(snapshot: SnapshotReference | None) -> dict[str, str] | None:
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
    return None if text is None else integer(text)
