"""The HTTP client below ``shale.client``: a connection that is lost is one kind of error on every event loop."""

from typing import Any

import httpx

_LOST = "getpeername"


class LoopNeutralClient(httpx.AsyncClient):
    """An ``httpx.AsyncClient`` on which a server that is killed while the connection is made is a ``ConnectError``."""

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
