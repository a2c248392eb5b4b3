"""Servers at wrong places: what they answer, and the options of a bucket there."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from shale.errors import AccessDenied, DeadlineExceeded, NotFoundError, ShaleError
from shale.store.options import StoreOptions
from tests.integration.store.servers import http_server, nobody_listening

SCHEMES = ("s3", "gs", "az")
NO_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"


class Answer(NamedTuple):
    """What a caller is told: the error, and a part of its line."""

    error: type[ShaleError]
    text: str


PLACES = {
    "refused": Answer(DeadlineExceeded, "Connection refused"),
    "silent": Answer(DeadlineExceeded, "check the URL, the endpoint and the network"),
    "401": Answer(AccessDenied, "the store refused the credentials"),
    "403": Answer(AccessDenied, "the store refused the credentials"),
    "404": Answer(NotFoundError, "there is no such bucket"),
}


@contextmanager
def endpoints() -> Iterator[dict[str, str]]:
    """Run a server at each of the ``PLACES``; yields their URLs."""
    with ExitStack() as stack:
        port = stack.enter_context(nobody_listening())
        silent = stack.enter_context(socket.socket())
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        yield {
            "refused": f"http://127.0.0.1:{port}",
            "silent": f"http://127.0.0.1:{silent.getsockname()[1]}",
            **{code: stack.enter_context(http_server(_handler(int(code)))) for code in ("401", "403", "404")},
        }


def _handler(code: int) -> type[BaseHTTPRequestHandler]:
    body = NO_BUCKET if code == 404 else b""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None:
            """Write no log."""

    return Handler


def store_options(scheme: str, endpoint: str) -> StoreOptions:
    """Return the options of a bucket at an endpoint."""
    match scheme:
        case "s3":
            config = {"endpoint": endpoint, "access_key_id": "a", "secret_access_key": "topsecret", "region": "r"}
        case "az":
            config = {"endpoint": f"{endpoint}/account", "account_name": "account", "account_key": "dG9wc2VjcmV0"}
        case _:
            account = {"gcs_base_url": endpoint, "disable_oauth": True}
            keys = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            config = {"service_account_key": json.dumps({**account, **keys})}
    return StoreOptions(config=config, client={"allow_http": "true"}, request_timeout_s=1.0)
