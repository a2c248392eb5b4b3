"""``python -m tests.bench.http.trivial PORT``: the least that Starlette can do for a PUT, on the server that we use."""

import sys

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.service.http.server import open_socket, serve_app

VALUES: dict[str, bytes] = {}


async def put(request: Request) -> Response:
    """Keep the body."""
    VALUES[request.path_params["key"]] = await request.body()
    return Response(status_code=204)


async def main(port: int) -> None:
    """Serve until killed."""
    app = Starlette(routes=[Route("/v1/kv/{key}", put, methods=["PUT"])])
    with open_socket("127.0.0.1", port, setting="port") as listener:
        async with serve_app(app, listener, request_timeout_s=1):
            await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), backend_options={"use_uvloop": True})
