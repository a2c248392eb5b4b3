"""Requests that pages of other sites make a browser send.

A browser sends them to any address that it reaches, also to ports that only programs of its machine reach.  Without
tokens nothing else tells them from requests of programs.
"""

from collections.abc import Mapping
from http import HTTPStatus

from shale.service.http.problems import Problem

_OWN_SITES = frozenset((b"same-origin", b"none"))
"""Of ``Sec-Fetch-Site``: a page of this port, and the user, for example with a typed address."""


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


def _of_another_site() -> Problem:
    detail = (
        "a page of another site sent this call, and this port has no tokens: set tokens (docs/how-to/tokens.md) to "
        "allow calls of browsers, or send neither Origin nor Sec-Fetch-Site"
    )
    return Problem(HTTPStatus.FORBIDDEN, detail)
