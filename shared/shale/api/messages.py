"""Minimal request and response classes; those of Starlette cost more per request than a put."""

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from shale.service.http.problems import bad_request
from shale.sst.budget import LARGE_VALUE_BYTES

OCTETS = "application/octet-stream"
PIECE_BYTES = 256 << 10
"""Large bodies are sent in pieces, so that no server copies a whole body into its buffers."""
_MORE_FIELDS = 64
"""More query parameters than a path takes are parsed, so that an error can name an unknown one."""
RawHeader = tuple[bytes, bytes]


class Request:
    """A request.  Path and headers stay bytes, because a key may contain any bytes."""

    __slots__ = ("headers", "method", "path", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, named in lower case; ``None`` if it is absent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def has(self, name: bytes) -> bool:
        """Return whether a header is present."""
        return name in self.headers

    def query(self, *known: str) -> dict[str, str]:
        """Return the query parameters.

        Raises:
            Problem: there are too many parameters, or one is repeated or unknown (400); ignoring it would hide a
                misspelling.
        """
        text: bytes = self.scope["query_string"]
        if not text:
            return {}
        try:
            pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=len(known) + _MORE_FIELDS)
        except ValueError:
            raise bad_request("there are too many query parameters") from None
        found = dict(pairs)
        if len(found) < len(pairs):
            raise bad_request("a query parameter is given twice")
        for name in found:
            if name not in known:
                there = f"known: {', '.join(known)}" if known else "this path takes none"
                raise bad_request(f"{name}: unknown query parameter; {there}")
        return found


class Response:
    """A response with a complete body."""

    __slots__ = ("body", "raw_headers", "status_code")

    def __init__(
        self,
        status: HTTPStatus | int,
        body: bytes | bytearray = b"",
        *,
        media_type: str | None = None,
        headers: Iterable[RawHeader] = (),
    ) -> None:
        self.status_code = int(status)
        self.body = body
        self.raw_headers = [*headers]
        if media_type is not None:
            self.raw_headers.append((b"content-type", media_type.encode("latin-1")))
        if self.status_code != HTTPStatus.NO_CONTENT:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(self.body) > LARGE_VALUE_BYTES:  # a smaller one counts as unread bytes of its connection
            rest = memoryview(self.body)
            while len(rest) > PIECE_BYTES:  # the server waits before each piece until the client has read the last one
                await send({"type": "http.response.body", "body": rest[:PIECE_BYTES], "more_body": True})
                rest = rest[PIECE_BYTES:]
            # A copy: the server may keep the last piece long after this call, and with it the whole body.
            await send({"type": "http.response.body", "body": bytes(rest)})
            return
        await send({"type": "http.response.body", "body": self.body})
