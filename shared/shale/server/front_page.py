"""What a browser sees at ``/`` of the data port: where the console is.

The port needs no token for it, because the page tells nothing about the database.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from html import escape

from starlette.types import Receive, Scope, Send

_PATHS = (b"/", b"")
_PORT = re.compile(r":[0-9]{1,5}$")
_LOCAL = frozenset(("127.0.0.1", "localhost", "[::1]"))
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "vary": "accept",
}


class FrontPage:
    """An ASGI application before another one: it answers browsers that ask for ``/``.

    Args:
        app: answers everything else, also programs that ask for ``/``.
        role: of this process.
        admin_host: where the admin port listens.
        admin_port: the port of the console.
        scheme: of the URL of the console.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        role: str,
        admin_host: str,
        admin_port: int,
        scheme: str = "http",
    ) -> None:
        self._app = app
        self._role = role
        self._admin_host = admin_host
        self._admin_port = admin_port
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["raw_path"] not in _PATHS or not _is_browser(scope):
            await self._app(scope, receive, send)
            return
        body = self._page(dict(scope["headers"]).get(b"host", b"").decode("latin-1")).encode()
        texts = {**_HEADERS, "content-length": str(len(body))}
        headers = [(name.encode(), text.encode()) for name, text in texts.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    def _page(self, given: str) -> str:
        host = _PORT.sub("", given) or "127.0.0.1"
        console = escape(f"{self._scheme}://{host}:{self._admin_port}/")
        where = f'<a href="{console}">{console}</a>'
        if self._admin_host in _LOCAL and host not in _LOCAL:
            where = f"port {self._admin_port} of that machine, which only programs there can reach: forward it"
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Shale {escape(self._role)}</title>
</head>
<body>
<h1>Shale {escape(self._role)}</h1>
<p>This port is for programs; its calls are described by <a href="openapi.json">openapi.json</a>.</p>
<p>The console, for you, is on the admin port: {where}</p>
</body>
</html>
"""


def _is_browser(scope: Mapping[str, object]) -> bool:
    """Return whether a request reads, and prefers HTML; other clients accept anything, or JSON."""
    headers = scope["headers"]
    assert isinstance(headers, list)
    accept = next((value for name, value in headers if name == b"accept"), b"")
    return scope["method"] in ("GET", "HEAD") and b"text/html" in accept
