"""The HTTP ports: bodies, paths, headers and tokens of requests, and heads on a raw connection."""

import asyncio
import base64
import contextlib
import json
import random
from collections.abc import Sequence
from typing import Any, cast

import msgpack
import orjson
import uvicorn
from pydantic import SecretStr
from uvicorn.server import ServerState

from shale.api.scan.token import ScanToken, decode_token, encode_token
from shale.service.access import AccessTokens, Role
from shale.service.http.bearer import BearerAuth, token_of
from shale.service.http.connection import BoundedProtocol
from shale.service.http.problems import Problem
from shale.service.http.request_id import safe_request_id
from shale.service.http.server_url import server_url
from tests.fuzz import loop
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets.metadata import JSON_MUTATION, JSON_WORDS, mutate_json
from tests.unit.api.harness import b64, open_port

_PORT = loop.kept(open_port)
_SERVER_ERROR = 500
_ROUTES: tuple[tuple[str, str, Any], ...] = (
    (
        "POST",
        "/v1/batch",
        {"ops": [{"op": "put", "key": b64(b"k"), "value": b64(b"v"), "ttl": 5}, ["delete", b64(b"a")]]},
    ),
    (
        "POST",
        "/v1/txn",
        {
            "compare": [{"check": "value", "key": b64(b"k"), "value": b64(b"v")}, ["absent", b64(b"z")]],
            "ops": [["put", b64(b"k"), b64(b"w")]],
        },
    ),
    ("POST", "/v1/get-many", {"keys": [b64(b"k"), b64(b"z")]}),
    ("POST", "/v1/scan", {"start": b64(b"a"), "stop": b64(b"z"), "limit": 3, "reverse": True}),
    ("POST", "/v1/scan-page", {"prefix": b64(b"k"), "limit": 2, "resume": None}),
    ("POST", "/v1/snapshots", {"ttl": 5}),
    ("PUT", "/v1/snapshots/x", {}),
    ("DELETE", "/v1/snapshots/x?a=1", {}),
    ("PUT", "/v1/kv/a%2Fb", None),
    ("PATCH", "/v1/kv/k", None),
    ("GET", "/v1/kv/k?durability=memory", None),
    ("DELETE", "/v1/kv/k", None),
    ("GET", "/v1/writer", None),
    ("GET", "/openapi.json", None),
)
_HEADERS = (
    *("content-type: application/json", "content-type: application/msgpack", "content-type: text/x", "accept: */*"),
    *("x-shale-durability: memory", "x-shale-ttl-ms: 50", "x-shale-ttl-ms: never", "x-shale-expire-at: 99999999999999"),
    *("idempotency-key: a", "accept: application/vnd.apache.arrow.stream", "accept: application/msgpack"),
    *("x-request-id: \xff", "x-shale-snapshot: x", "authorization: Bearer x", "if-none-match: *", "range: bytes=0-1"),
    *("content-encoding: gzip", "x-shale-durability: \u00e9", "x-shale-ttl-ms: " + "9" * 5000, "host: [::1]:5"),
)


def _request(data: bytes) -> None:
    loop.run(_sent(data))


async def _sent(data: bytes) -> None:
    await send_request((await _PORT()).app, data)


async def send_request(app: Any, data: bytes) -> tuple[int, bytes]:
    """Send one request: method and path, headers, an empty line, and the body; check the form of the answer.

    Returns:
        The status and the body of the answer; status 0 if there is none.
    """
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, _, target = first.partition(b" ")
    path, _, query = target.partition(b"?")
    named = [line.partition(b":") for line in lines if b":" in line]
    scope = {
        "type": "http",
        "method": method.decode("latin-1") or "GET",
        "scheme": "http",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": [(name.strip().lower(), value.strip()) for name, _, value in named],
    }
    sent: list[dict[str, Any]] = []
    sent_body: list[bool] = []

    async def receive() -> dict[str, Any]:
        if not sent_body:
            sent_body.append(True)
            return {"type": "http.request", "body": body, "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    _check_answer(sent)
    return sent[0]["status"] if sent else 0, b"".join(message.get("body", b"") for message in sent[1:])


def _check_answer(sent: list[dict[str, Any]]) -> None:
    starts = [message for message in sent if message["type"] == "http.response.start"]
    if not sent:
        return  # the client was gone
    if len(starts) != 1 or sent[0] is not starts[0]:
        raise Difference(f"an answer does not begin once: {[message['type'] for message in sent][:5]}")
    status = starts[0]["status"]
    if status >= _SERVER_ERROR:
        raise Difference(f"the answer is {status}: {b''.join(each.get('body', b'') for each in sent)[:200]!r}")
    headers = dict(starts[0]["headers"])
    if status >= 400 and headers.get(b"content-type") == b"application/problem+json":
        orjson.loads(b"".join(each.get("body", b"") for each in sent))


def _requests() -> list[bytes]:
    found = []
    for method, target, fields in _ROUTES:
        first = f"{method} {target}\r\n".encode()
        if fields is None:
            found.append(first + b"x-shale-ttl-ms: 50\r\n\r\nvalue")
            continue
        found.append(first + b"content-type: application/json\r\n\r\n" + orjson.dumps(fields))
        packed = bytes(msgpack.packb(_as_bytes(fields)) or b"")
        found.append(first + b"content-type: application/msgpack\r\n\r\n" + packed)
    return found


def _as_bytes(value: Any) -> Any:
    """Return fields as msgpack has them: base64 is bytes."""
    if isinstance(value, dict):
        return {name: _as_bytes(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_bytes(each) for each in value]
    if isinstance(value, str) and value.endswith("="):
        return base64.b64decode(value)
    return value


def mutate_request(rng: random.Random, data: bytes, routes: Sequence[tuple[str, str, Any]] = _ROUTES) -> bytes:
    """Change the method and path, the headers, or the body."""
    head, gap, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    match rng.randrange(8):
        case 0:
            lines.append(rng.choice(_HEADERS).encode("latin-1", "replace"))
        case 1:
            lines = lines[1:]
        case 2:
            first = mutate_bytes(rng, first)
        case 3:
            other = rng.choice(routes)
            first = f"{other[0]} {other[1]}".encode()
        case _ if b"msgpack" in head:
            body = mutate_msgpack(rng, body)
        case 4 | 5 | 6:
            body = mutate_json(rng, body)
        case _:
            body = JSON_MUTATION(rng, body)
    return b"\r\n".join((first, *lines)) + gap + body


def mutate_msgpack(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a msgpack document, as ``mutate_json`` does; bytes that are none are changed as such."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    try:
        fields = msgpack.unpackb(data, strict_map_key=False)
        text = json.dumps(fields, default=lambda value: {"\0": base64.b64encode(value).decode()})
        changed = json.loads(mutate_json(rng, text.encode()), object_hook=_unhooked)
        return bytes(msgpack.packb(changed) or b"")
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException):
        return mutate_bytes(rng, data)


def _unhooked(fields: dict[str, Any]) -> Any:
    coded = fields.get("\0")
    return base64.b64decode(coded) if isinstance(coded, str) else fields


class _Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.written = bytearray()
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


_CONFIG = uvicorn.Config(
    _hello, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False
)


def _connection(data: bytes) -> None:
    """Feed a connection; every answer is one of HTTP, and no exception leaves a callback."""
    loop.run(_fed(data))


async def _fed(data: bytes) -> None:
    problems: list[dict[str, Any]] = []
    running = asyncio.get_running_loop()
    running.set_exception_handler(lambda _, context: problems.append(context))
    if not _CONFIG.loaded:
        _CONFIG.load()
    protocol = BoundedProtocol(_CONFIG, ServerState(), {})
    transport = _Transport()
    protocol.connection_made(transport)
    step = max(len(data) // 3, 1)
    for start in range(0, len(data), step):
        if not transport.is_closing():
            protocol.data_received(data[start : start + step])
        await asyncio.sleep(0)
    for _ in range(8):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for _ in range(8):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    if transport.written and not transport.written.startswith(b"HTTP/1.1 "):
        raise Difference(f"an answer that is not HTTP: {bytes(transport.written[:60])!r}")
    if problems:
        raise Difference(f"an exception left a callback: {problems[0].get('exception') or problems[0]['message']!r}")


_HTTP_WORDS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\n",
        b"5\r\n",
    ),
    *(
        b"Transfer-Encoding: x\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"0\r\n\r\n",
    ),
    *(b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Host: \x00\r\n", b"HTTP/0.9", b" "),
    *(
        b"Connection: close\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"GET http://[ HTTP/1.1\r\n",
    ),
)


def _connections() -> list[bytes]:
    return [
        b"GET /v1/kv/a HTTP/1.1\r\nhost: a\r\n\r\n" * 2,
        b"POST /x?y=1 HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n",
    ]


def _token(data: bytes) -> None:
    """Read a resume token: the bytes as they are, and as what a right checksum covers."""
    with contextlib.suppress(Problem):
        decode_token(data.decode(errors="replace"))
    from hashlib import blake2b

    check = blake2b(data, digest_size=4, person=b"shale.scan").digest()
    found = decode_token(base64.urlsafe_b64encode(data + check).decode())
    encode_token(found)


def _tokens() -> list[bytes]:
    plain = ScanToken(scan=b"12345678", seq=7, snapshot="s", last_key=b"k")
    return [base64.urlsafe_b64decode(encode_token(each))[:-4] for each in (plain, ScanToken(scan=b"", seq=0))]


_ACCESS = AccessTokens([(SecretStr("secret"), Role.READ), (SecretStr("s" * 500), Role.WRITE)])


def _bearer(data: bytes) -> None:
    """Read a header with a token, a request id and a host."""
    text = data.decode("latin-1")
    token_of(text)
    safe_request_id(text).encode("ascii")
    server_url(cast("Any", {"scheme": "http", "headers": [(b"host", data)]}))
    BearerAuth(_ACCESS).caller(text, Role.READ)
    headers = [(b"authorization", data)]
    BearerAuth(_ACCESS).require(dict(headers), Role.READ, {"client": ("127.0.0.1", 5), "headers": headers})


def targets() -> list[Target]:
    parts = ("fields", "messages", "ops_body", "txn_body", "scan.request")
    bodies = (
        *(f"shale.api.{name}" for name in parts),
        "shale.service.http.bodies",
        "shale.service.http.documents",
        "shale.api.limits",
    )
    routes = tuple(f"shale.api.routes.{name}" for name in ("reads", "writes", "snapshots", "writer"))
    tokens = ("shale.api.scan.token",)
    connection = ("shale.service.http.connection", "shale.service.http.ordered_connection")
    bearer = ("shale.service.http.bearer", "shale.service.http.request_id", "shale.service.http.server_url")
    http_words = words_mutation(_HTTP_WORDS)
    return [
        Target(
            "http request",
            _request,
            _requests,
            (),
            (*bodies, *routes, "shale.service.http.documents"),
            mutate_request,
            weight=3,
        ),
        Target(
            "http connection",
            _connection,
            _connections,
            (),
            connection,
            http_words,
            weight=2,
        ),
        Target("scan token", _token, _tokens, (Problem,), tokens, any_of(mutate_msgpack, words_mutation(JSON_WORDS))),
        Target("bearer header", _bearer, lambda: [b"Bearer secret", b"bearer  x", b"localhost:80"], (Problem,), bearer),
    ]
