"""An S3 server for tests and local stacks: moto, one request at a time.

    python -m shale.testing.s3_server PORT [--host HOST] [--bucket NAME]... [--ignore-conditions]

moto checks a condition and writes in different threads, so two conditional puts can both win; one lock around the
whole server makes them atomic.  ``--ignore-conditions`` makes it ignore the conditions of puts; the preflight check
must refuse such a server.  Nothing is durable.  Port 0 picks a free port; the first line on stdout is the URL.
"""

import argparse
import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _QuietHandler(WSGIRequestHandler):
    """Logs nothing: requests are counted by the clients."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """Write nothing."""


def serialized(app: Wsgi) -> Wsgi:
    """Return ``app`` with a lock that is held until the response is complete.

    The body is read before, so that a client that stalls in its request does not block all others.
    """
    lock = threading.Lock()

    def locked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            body = environ["wsgi.input"].read(length)
            if len(body) < length:
                start_response("400 Bad Request", [("Content-Length", "0")])
                return [b""]
            environ["wsgi.input"] = io.BytesIO(body)
        with lock:
            answer = app(environ, start_response)
            chunks = list(answer)
            if (close := getattr(answer, "close", None)) is not None:
                close()
            return chunks

    return locked


def ignore_conditions_of_puts(app: Wsgi) -> Wsgi:
    """Return ``app`` with the conditions of puts removed."""

    def unconditional(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            environ.pop("HTTP_IF_NONE_MATCH", None)
            environ.pop("HTTP_IF_MATCH", None)
        return app(environ, start_response)

    return unconditional


def serve(host: str, port: int, buckets: list[str], *, ignore_conditions: bool = False) -> None:
    """Serve until the process is ended."""
    app = serialized(DomainDispatcherApplication(create_backend_app))
    if ignore_conditions:
        app = ignore_conditions_of_puts(app)
    server = make_server(host, port, app, threaded=True, request_handler=_QuietHandler)
    for bucket in buckets:
        _create_bucket(app, bucket)
    sys.stdout.write(f"http://{host}:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


def _create_bucket(app: Wsgi, bucket: str) -> None:
    from werkzeug.test import Client

    answer = Client(app).put(f"/{bucket}", headers={"Host": "s3.amazonaws.com"})
    if answer.status_code != 200:
        raise SystemExit(f"cannot create bucket {bucket}: {answer.status}")


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="shale.testing.s3_server")
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--bucket", action="append", default=[])
    parser.add_argument("--ignore-conditions", action="store_true")
    arguments = parser.parse_args()
    serve(arguments.host, arguments.port, arguments.bucket, ignore_conditions=arguments.ignore_conditions)


if __name__ == "__main__":
    main()
