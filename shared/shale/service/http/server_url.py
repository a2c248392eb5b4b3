"""The URL under which a client reached this process, for the ``servers`` of OpenAPI documents."""

import re

from starlette.types import Scope

_HOST = re.compile(rb"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


def server_url(scope: Scope) -> str:
    """Return scheme, host and port of a request; ``/``, which is relative, without a usable ``Host`` header.

    A proxy that ends TLS is not seen: its clients replace the URL.
    """
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return f"{scope['scheme']}://{host.decode('ascii')}" if _HOST.fullmatch(host) else "/"
