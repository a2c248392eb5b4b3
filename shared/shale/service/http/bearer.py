"""Bearer-token authentication of HTTP requests."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from shale.service.access import AccessTokens, Quota, Role
from shale.service.http.connection import CERTIFICATE
from shale.service.http.cross_site import refuse_other_names, refuse_other_sites
from shale.service.http.problems import Problem, bad_request, busy, response

READING_METHODS = frozenset({"GET", "HEAD"})
PROBED_PATHS = frozenset({"/livez", "/readyz", "/startupz", "/metrics"})
"""Of the admin port, for probes and scrapers, which may call a local port by any name: these tell nothing of a row."""


class BearerAuth:
    """Checks the token of each request of a port."""

    def __init__(self, tokens: AccessTokens) -> None:
        self._tokens = tokens

    def require(self, headers: Mapping[bytes, bytes], role: Role, scope: Mapping[str, Any]) -> None:
        """Check the headers of a request.

        Args:
            headers: the headers, in lower case; of repeated ones the last.
            role: what the request needs.
            scope: of the request: its method, all its headers, and the address of the client.

        Raises:
            Problem: there are two tokens (400); the token is missing or unknown (401; 429 after too many such
                requests); its role is too low, the client has no certificate, or the port requires a token and none is
                set (403); it has no tokens, and a page of another site sent a request that may change something, or
                the port is local and the request names another machine (403).
        """
        if self._tokens.certificate_required and not scope.get("extensions", {}).get(CERTIFICATE):
            self._count_failure(scope)
            raise Problem(
                HTTPStatus.FORBIDDEN, "this call needs a certificate of the client: tls.client_ca_file is set"
            )
        self.require_name(headers)
        if self._tokens.is_open:
            if scope["method"] not in READING_METHODS:
                refuse_other_sites(headers)
            return
        if self._tokens.is_closed:
            raise _closed()
        # The last one is in ``headers``; a proxy may have checked the first one.
        if len(headers) < len(scope["headers"]) and _is_repeated(b"authorization", scope):
            raise bad_request("Authorization is given twice")
        token = token_of(authorization_of(headers))
        if token is None:
            self._count_failure(scope)
            raise _unauthorized("a bearer token is required", "Bearer")
        found = self._tokens.role_of(token)
        if found is None:
            self._count_failure(scope)
            raise _unauthorized("the bearer token is unknown", 'Bearer error="invalid_token"')
        if found < role:
            raise _forbidden(found, role)

    def require_name(self, headers: Mapping[bytes, bytes]) -> None:
        """Check that a request to a local port without tokens names this machine.

        Raises:
            Problem: it names another one (403).
        """
        if self._tokens.is_local and self._tokens.is_open:
            refuse_other_names(headers)

    def _count_failure(self, scope: Mapping[str, Any]) -> None:
        failures, client = self._tokens.failures, scope.get("client")
        pause_s = None if failures is None or client is None else failures.failed(client[0])
        if pause_s is not None:
            detail = f"auth.failures_per_minute: too many requests without a valid token: try again after {pause_s} s"
            problem = busy(detail, status=HTTPStatus.TOO_MANY_REQUESTS)
            problem.headers["Retry-After"] = str(pause_s)
            problem.headers["Connection"] = "close"  # of a thousand pipelined requests, the rest is dropped
            raise problem

    def caller(self, authorization: str | None, role: Role) -> tuple[Role, bytes | None]:
        """Return role and token of a request that ``require`` allows; on an open port ``role``, and no token."""
        token = None if self._tokens.is_open else token_of(authorization)
        found = None if token is None else self._tokens.role_of(token)
        return (role, None) if found is None else (found, token)


def use_quota(quota: Quota) -> None:
    """Count a request.

    Raises:
        Problem: the quota is used up (429).
    """
    pause_s = quota.admit()
    if pause_s is not None:
        problem = busy(quota.refusal(pause_s), status=HTTPStatus.TOO_MANY_REQUESTS)
        problem.headers["Retry-After"] = str(pause_s)
        raise problem


def authorization_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the ``Authorization`` header; ``None`` if it is absent."""
    value = headers.get(b"authorization")
    return None if value is None else value.decode("latin-1")


def token_of(authorization: str | None) -> bytes | None:
    """Return the bearer token of an ``Authorization`` header; ``None`` if it has none."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" and token.strip() else None


class BearerAuthMiddleware:
    """ASGI middleware that protects the paths below one prefix: reads need the role read, other methods admin.

    A call over the quota of its token gets 429.  Of the other paths only ``PROBED_PATHS`` may be called by any name.
    """

    def __init__(self, app: ASGIApp, prefix: str, tokens: AccessTokens) -> None:
        self._app = app
        self._prefix = prefix
        self._bearer = BearerAuth(tokens)
        self._quotas = tokens.quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Problem as problem:
                await response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if scope["path"].startswith(self._prefix):
            role = Role.READ if scope["method"] in READING_METHODS else Role.ADMIN
            self._bearer.require(headers, role, scope)
            if self._quotas is not None and self._quotas.is_limiting:
                use_quota(self._quotas.of(*self._bearer.caller(authorization_of(headers), role)))
        elif scope["path"] not in PROBED_PATHS:
            self._bearer.require_name(headers)


def _is_repeated(name: bytes, scope: Mapping[str, Any]) -> bool:
    return [given for given, _ in scope["headers"]].count(name) > 1


def _unauthorized(detail: str, challenge: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})


def _closed() -> Problem:
    detail = (
        "the admin port is closed, because no token is set for it: set tokens.admin or admin.bearer_token, and send "
        "SIGHUP or restart; without any token of this process, admin.require_token = false opens it to all clients"
    )
    return Problem(HTTPStatus.FORBIDDEN, detail)


def _forbidden(found: Role, needed: Role) -> Problem:
    challenge = f'Bearer error="insufficient_scope", scope="{needed.label}"'
    detail = f"this call needs a token with the role {needed.label}; the role of this token is {found.label}"
    return Problem(HTTPStatus.FORBIDDEN, detail, headers={"WWW-Authenticate": challenge})
