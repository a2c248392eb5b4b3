"""The routes of the console on an admin port; they only read."""

from binascii import unhexlify
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp

from shale.admin.json_values import b64
from shale.console.event_stream import EventStream
from shale.console.page import HEADERS, asset, render_page
from shale.console.source import ConsoleSource
from shale.engine.read.reads import Reads
from shale.service.access import AccessTokens, Quotas, Role
from shale.service.admin import json_response
from shale.service.admin_calls import body_budget, json_fields, no_query, with_problem_responses
from shale.service.http.bearer import BearerAuth, use_quota
from shale.service.http.problems import Problem, bad_request, busy

LOOKUP = "/console/lookup"
CLIENTS_MAX = 16
KEY_BYTES_MAX = 65_535
VALUE_SHOWN_BYTES = 4096
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class ConsoleRoutes:
    """The page, its files, the stream of states, the plan of the collector, and the lookup of a key.

    Args:
        source: what the page shows.
        status: returns the status of the process.
        tokens: the tokens of the port; all data needs the role read, if there are any.
        reads: the open database; ``None``: the process cannot look up keys.
        quotas: those of the data ports, in which a lookup counts, as it reads rows as they do.
        audit: wraps the lookups, so that they are in the audit log.
    """

    def __init__(
        self,
        source: ConsoleSource,
        status: Callable[[], dict[str, Any]],
        tokens: AccessTokens,
        reads: Reads | None,
        *,
        quotas: Quotas | None = None,
        audit: Callable[[ASGIApp], ASGIApp] | None = None,
    ) -> None:
        self._source = source
        self._status = status
        self._tokens = tokens
        self._bearer = BearerAuth(tokens)
        self._reads = reads
        self._quotas = quotas
        self._audit = audit
        self._budget = body_budget()
        self._clients = 0

    def routes(self) -> list[BaseRoute]:
        """Return the routes for the admin port."""
        data = {"/console/events": self._events, "/console/candidates": self._candidates}
        return [
            Route("/", self._page),
            Route("/console.js", _file("console.js", "text/javascript")),
            Route("/console.css", _file("console.css", "text/css")),
            *(Route(path, with_problem_responses(self._protected(handler))) for path, handler in data.items()),
            *(() if self._reads is None else (self._lookup_route(),)),
        ]

    def _lookup_route(self) -> Route:
        handler = with_problem_responses(self._protected(self._lookup))
        endpoint = handler if self._audit is None else self._audit(request_response(handler))
        return Route(LOOKUP, endpoint, methods=["POST"])

    async def _page(self, request: Request) -> Response:  # noqa: ARG002 - the signature of a route
        page = render_page(self._status(), is_open=self._tokens.is_open, can_look_up=self._reads is not None)
        return Response(page, headers=HEADERS, media_type="text/html")

    def _protected(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self._require_token(request)
            return await handler(request)

        return answer

    def _require_token(self, request: Request) -> None:
        self._bearer.require(dict(request.scope["headers"]), Role.READ, request.scope)

    def _is_allowed(self, request: Request) -> bool:
        try:
            self._require_token(request)
        except Problem:
            return False
        return True

    async def _events(self, request: Request) -> Any:
        no_query(request)
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        if self._clients >= CLIENTS_MAX:
            raise busy(f"{CLIENTS_MAX} pages are open already")
        self._clients += 1
        return EventStream(self._source.state, _RAW_HEADERS, partial(self._is_allowed, request), self._left)

    def _left(self) -> None:
        self._clients -= 1

    async def _candidates(self, request: Request) -> Response:
        no_query(request)
        return Response(await self._source.candidates(), headers=HEADERS, media_type="application/json")

    async def _lookup(self, request: Request) -> Response:
        """Read one row.  Rows are data, which an admin port without tokens must not show."""
        no_query(request)
        if self._tokens.is_open:
            raise Problem(HTTPStatus.FORBIDDEN, "looking up keys needs a token: set tokens.read")
        assert self._reads is not None
        self._use_quota(request)
        key = _key(await json_fields(request, self._budget, {"key", "format"}))
        row = await self._reads.get_row(key)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, "no such key")
        return json_response(
            {
                "key_b64": b64(row.key),
                "value_b64": b64(row.value[:VALUE_SHOWN_BYTES]),
                "value_bytes": len(row.value),
                "seq": row.seq,
                "create_ts": row.create_ts,
                "expire_ts": row.expire_ts,
            }
        )

    def _use_quota(self, request: Request) -> None:
        """Count a lookup as a read of its token.

        Raises:
            Problem: the quota is used up (429).
        """
        if self._quotas is not None and self._quotas.is_limiting:
            use_quota(self._quotas.of(*self._bearer.caller(request.headers.get("authorization"), Role.READ)))


def _key(fields: dict[str, Any]) -> bytes:
    text, form = fields.get("key"), fields.get("format", "text")
    if not isinstance(text, str):
        raise bad_request("key: must be text")
    if form not in ("text", "hex"):
        raise bad_request("format: must be text or hex")
    try:
        key = unhexlify(text) if form == "hex" else text.encode()
    except ValueError as error:
        raise bad_request(f"key: not hexadecimal: {error}") from error
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise bad_request(f"key: must have 1 to {KEY_BYTES_MAX} bytes")
    return key


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:  # noqa: ARG001 - the signature of a route
        return Response(asset(name), headers=HEADERS, media_type=media_type)

    return serve
