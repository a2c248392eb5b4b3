"""One request and its answer, as thin as ASGI has them: what Starlette builds for each costs more than a put."""

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from shale.service.problems import bad_request

OCTETS = "application/octet-stream"
RawHeader = tuple[bytes, bytes]


class Call:
    """A request.  The path and the headers stay bytes: a key may hold any."""

    __slots__ = ("_headers", "method", "path", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: bytes) -> str | None:
        """The value of a header, whose name is given in lower case; ``None`` if it was not sent."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    def has(self, name: bytes) -> bool:
        """Whether a header was sent."""
        return name in self._headers

    def query(self, *known: str) -> dict[str, str]:
        """The query.

        Raises:
            Problem: it has a name that this call does not know, or one twice: a misspelt wish would be lost (400).
        """
        text: bytes = self.scope["query_string"]
        if not text:
            return {}
        pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=64 + len(known))
        found = dict(pairs)
        if len(found) < len(pairs):
            raise bad_request("the query has a name twice")
        for name in found:
            if name not in known:
                there = f"there is {', '.join(known)}" if known else "this call takes none"
                raise bad_request(f"{name}: no such parameter of the query; {there}")
        return found


class Answer:
    """A whole answer."""

    __slots__ = ("body", "raw_headers", "status_code")

    def __init__(
        self,
        status: HTTPStatus | int,
        body: bytes = b"",
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
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})
