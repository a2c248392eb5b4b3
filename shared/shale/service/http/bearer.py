"""Bearer-token authentication of HTTP requests."""

from secrets import compare_digest

from pydantic import SecretStr
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from shale.service.http.problems import Problem, response, unauthorized


class BearerAuth:
    """The token that requests must carry; without a token every request is allowed."""

    def __init__(self, token: SecretStr | None) -> None:
        self._token = token.get_secret_value().encode() if token is not None else None

    def require(self, authorization: str | None) -> None:
        """Check an ``Authorization`` header.

        Raises:
            Problem: the token is missing or wrong (401).
        """
        if self._token is None:
            return
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(token.strip().encode(), self._token):
            raise unauthorized()


class BearerAuthMiddleware:
    """ASGI middleware that requires the bearer token below one path prefix."""

    def __init__(self, app: ASGIApp, prefix: str, bearer: BearerAuth) -> None:
        self._app = app
        self._prefix = prefix
        self._bearer = bearer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            try:
                self._bearer.require(HTTPConnection(scope).headers.get("authorization"))
            except Problem as problem:
                await response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)
