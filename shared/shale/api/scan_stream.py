"""``POST /v1/scan``: a stream of NDJSON lines, one row each, closed by a line that says how it ended.

Request: ``{"start", "stop", "prefix", "limit", "resume"}``, all optional; keys are base64.  The last line is
``{"end": true, "rows": n, "resume": token}``; the token continues behind the last row and is ``null`` when nothing is
left.  An error after the first line becomes the last line, ``{"error": problem}``: without either, the stream was cut.
"""

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus

import anyio
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shale.api.fields import from_base64, known_only, to_base64
from shale.engine.reads import Reads
from shale.errors import ShaleError
from shale.service.problems import bad_request, document, problem_of
from shale.types import Row

CHUNK_ROWS = 1024
MEDIA_TYPE = "application/x-ndjson"
_FIELDS = frozenset({"start", "stop", "prefix", "limit", "resume", "reverse"})
_TOKEN_VERSION = b"\x01"


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What to read.  ``start`` is inclusive, ``stop`` exclusive."""

    start: bytes | None = None
    stop: bytes | None = None
    prefix: bytes | None = None
    limit: int | None = None


def scan_request(body: Mapping[str, object]) -> ScanRequest:
    """Check a request.

    Raises:
        Problem: a field is unknown, malformed, or asks for what there is not (400).
    """
    known_only(body, _FIELDS)
    if body.get("reverse"):
        raise bad_request("reverse: this release scans forwards only")
    limit = body.get("limit")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise bad_request("limit: not a number of rows")
    bounds = {name: from_base64(body[name], name) for name in ("start", "stop", "prefix") if body.get(name) is not None}
    token = body.get("resume")
    if token is not None:
        bounds["start"] = max(bounds.get("start", b""), _start_of(token))
    return ScanRequest(bounds.get("start"), bounds.get("stop"), bounds.get("prefix"), limit)


class LineStream(Response):
    """An answer that is sent as its pieces come; a client that goes away ends the reading at once."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__(status_code=HTTPStatus.OK, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send everything."""
        async with anyio.create_task_group() as tg, aclosing(self._rest) as pieces:
            tg.start_soon(_cancel_when_gone, receive, tg.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            tg.cancel_scope.cancel()


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def scan_lines(db: Reads, request: ScanRequest) -> AsyncGenerator[bytes, None]:
    """The lines of the answer, many in one piece.

    Raises:
        ShaleError: before the first row; later errors become the last line.
    """
    count = 0
    last: bytes | None = None
    scan = db.scan(prefix=request.prefix, start=request.start, stop=request.stop, limit=request.limit)
    try:
        async for rows in scan.batches(CHUNK_ROWS):
            count += len(rows)
            last = rows[-1].key
            yield b"".join(map(_line, rows))
    except ShaleError as error:
        if last is None:
            raise
        yield orjson.dumps({"error": document(problem_of(error))}) + b"\n"
        return
    more = last is not None and request.limit is not None and count >= request.limit
    resume = _token_after(last) if more and last is not None else None
    yield orjson.dumps({"end": True, "rows": count, "resume": resume}) + b"\n"


def _line(row: Row) -> bytes:
    key, value, seq, create_ts, expire_ts = row
    if expire_ts is None and create_ts is not None:
        return b'{"key":"%b","value":"%b","seq":%d,"create_ts":%d}\n' % (
            to_base64(key),
            to_base64(value),
            seq,
            create_ts,
        )
    fields: dict[str, object] = {"key": to_base64(key).decode(), "value": to_base64(value).decode(), "seq": seq}
    if create_ts is not None:
        fields["create_ts"] = create_ts
    if expire_ts is not None:
        fields["expire_ts"] = expire_ts
    return orjson.dumps(fields) + b"\n"


def _token_after(key: bytes) -> str:
    return base64.urlsafe_b64encode(_TOKEN_VERSION + key + b"\x00").decode()


def _start_of(token: object) -> bytes:
    try:
        plain = base64.urlsafe_b64decode(token) if isinstance(token, str) else b""
    except ValueError:
        plain = b""
    if not plain.startswith(_TOKEN_VERSION):
        raise bad_request("resume: not a token of a scan")
    return plain[len(_TOKEN_VERSION) :]
