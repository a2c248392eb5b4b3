"""Who may call: a bearer token, if the settings ask for one."""

from secrets import compare_digest

from pydantic import SecretStr
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from shale.service.problems import Problem, response, unauthorized


class Bearer:
    """The token that callers must send; without one everybody may call."""

    def __init__(self, token: SecretStr | None) -> None:
        self._token = token.get_secret_value().encode() if token is not None else None

    def require(self, authorization: str | None) -> None:
        """Return if a caller with this header may go on.

        Raises:
            Problem: the token is missing or wrong (401).
        """
        if self._token is None:
            return
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(token.strip().encode(), self._token):
            raise unauthorized()


class Guarded:
    """An application below one path of which only callers with the token get."""

    def __init__(self, app: ASGIApp, prefix: str, bearer: Bearer) -> None:
        self._app = app
        self._prefix = prefix
        self._bearer = bearer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            try:
                self._bearer.require(HTTPConnection(scope).headers.get("authorization"))
            except Problem as problem:
                await response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)
