"""The HTTP client below ``shale.client``.

A connection that is lost is one kind of error on every event loop, and compressed answers, which no server of Shale
sends, are refused: httpx expands them without a limit.
"""

from typing import Any

import httpx

_LOST = "getpeername"
_PLAIN = "identity"


class LoopNeutralClient(httpx.AsyncClient):
    """An ``httpx.AsyncClient`` on which a server that is killed while the connection is made is a ``ConnectError``.

    An answer with a content encoding is a ``DecodingError``, before its body is read.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(event_hooks={"response": [_refuse_encoded]}, **options)
        self.headers["Accept-Encoding"] = _PLAIN

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request; see ``httpx.AsyncClient.send``.

        Raises:
            httpx.TransportError: there is no response.
        """
        try:
            return await super().send(request, **options)
        except AttributeError as error:
            # On uvloop the socket of a closed transport is None, and anyio asks it for the address of its peer.
            if _LOST not in str(error):
                raise
            raise httpx.ConnectError("the connection was lost while it was made", request=request) from error


async def _refuse_encoded(response: httpx.Response) -> None:
    encoding: str = response.headers.get("content-encoding", _PLAIN)
    if encoding.strip().lower() not in ("", _PLAIN):
        raise httpx.DecodingError(f"the answer has the content encoding {encoding[:40]!r}", request=response.request)
