"""Requests that pages of other sites make a browser send.

A browser sends them to any address that it reaches, also to ports that only programs of its machine reach.  Without
tokens nothing else tells them from requests of programs.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address

from shale.service.http.problems import Problem

_OWN_SITES = frozenset((b"same-origin", b"none"))
"""Of ``Sec-Fetch-Site``: a page of this port, and the user, for example with a typed address."""

_HOST = re.compile(r"(?P<name>\[[0-9a-f.:]+(?:%[\w.~-]+)?\]|[\w.-]*)(?::\d*)?", re.ASCII)
"""An address in brackets, or a name or an address; after it a port."""

_SHOWN_CHARS = 255
"""The longest name of the DNS (RFC 1035)."""


def refuse_other_sites(headers: Mapping[bytes, bytes]) -> None:
    """Check the headers of a request that may change something.

    Browsers send ``Origin`` with all of these, and newer ones ``Sec-Fetch-Site``, which proxies do not make wrong;
    programs send neither.

    Raises:
        Problem: a page of another site sent it (403).
    """
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        if site not in _OWN_SITES:
            raise _of_another_site()
        return
    origin = headers.get(b"origin")
    if origin is not None and origin.rpartition(b"://")[2].lower() != headers.get(b"host", b"").lower():
        raise _of_another_site()


def refuse_other_names(headers: Mapping[bytes, bytes]) -> None:
    """Check that a request to a port of the loopback address names an address or ``localhost``.

    A page can give its own name the address 127.0.0.1 (DNS rebinding): the port is then of its own site for a browser,
    which lets it read responses, too, and says so in no header but ``Host``.

    Raises:
        Problem: ``Host`` is another name (403).
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    match = _HOST.fullmatch(host)
    name = host if match is None else match["name"]
    if match is None or not _is_local_name(name):
        detail = (
            f"the header Host names {name[:_SHOWN_CHARS]!r}, and this port has no tokens and listens for this machine "
            "only: call it by 127.0.0.1 or localhost, or set tokens (docs/how-to/tokens.md), or auth.insecure = true"
        )
        raise Problem(HTTPStatus.FORBIDDEN, detail)


def _is_local_name(name: str) -> bool:
    # Browsers resolve names below localhost themselves (RFC 6761).
    if not name or name.removesuffix(".") == "localhost" or name.removesuffix(".").endswith(".localhost"):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return name.startswith("[") == (":" in name)


def _of_another_site() -> Problem:
    detail = (
        "a page of another site sent this call, and this port has no tokens: set tokens (docs/how-to/tokens.md) to "
        "allow calls of browsers, or send neither Origin nor Sec-Fetch-Site"
    )
    return Problem(HTTPStatus.FORBIDDEN, detail)
