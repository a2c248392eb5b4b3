"""Errors of stores hold no secret, whatever a server answers: servers and proxies quote what they got."""

import traceback
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler

import pytest

from shale.errors import InvalidRequestError, ShaleError
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from shale.store.port import CREATE
from tests.integration.store.servers import http_server

pytestmark = pytest.mark.anyio

STATUSES = (301, 400, 401, 403, 404, 409, 412, 500)
S3 = {
    "access_key_id": "planted-id",
    "secret_access_key": "planted-secret",
    "session_token": "planted-session",
    "region": "r",
}
AZURE = {"account_name": "acc"}
STORES: dict[str, tuple[str, str, dict[str, str]]] = {
    "s3": ("s3://bucket", "http://user:planted-password@{}", S3),
    "token in the endpoint": ("s3://bucket", "http://planted-token@{}", S3),
    "sas": ("az://bucket", "http://{}/acc", AZURE | {"sas_token": "sv=2&sig=planted-signature"}),
    "bearer": ("az://bucket", "http://{}/acc", AZURE | {"bearer_token": "planted-bearer"}),
}
CALLS: dict[str, Callable[[CloudStore], Awaitable[object]]] = {
    "get": lambda store: store.get("db/a"),
    "head": lambda store: store.head("db/a"),
    "put": lambda store: store.put("db/a", b"1", mode=CREATE),
    "list": lambda store: store.list("db/"),
    "delete": lambda store: store.delete("db/a"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def quoting(status: int) -> type[BaseHTTPRequestHandler]:
    """Return a handler whose answers hold the request line and the headers, also in the form of S3."""

    class Quoting(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            lines = "\n".join(f"{name.lower()}:{value}" for name, value in self.headers.items())
            text = f"<Message>{self.command} {self.path}</Message><AWSAccessKeyId>planted-id</AWSAccessKeyId>{lines}"
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815 - the server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
            """Write nothing."""

    return Quoting


@pytest.mark.parametrize("kind", STORES)
async def test_no_error_and_no_traceback_of_it_holds_a_secret(kind: str) -> None:
    url, endpoint, config = STORES[kind]
    errors = 0
    for status in STATUSES:
        with http_server(quoting(status)) as server:
            config = config | {"endpoint": endpoint.format(server.removeprefix("http://"))}
            store = CloudStore(url, StoreOptions(config=config))
            for name, call in CALLS.items():
                try:
                    await call(store)
                except ShaleError as error:
                    errors += 1
                    text = "".join(traceback.format_exception(error))
                    assert "planted" not in text.replace(__file__, ""), (status, name)
            await store.aclose()
    assert errors > len(STATUSES) * len(CALLS) / 2


@pytest.mark.parametrize(
    ("url", "config"),
    [
        ("az://bucket", AZURE | {"sas_token": "planted-sas"}),
        ("az://bucket", AZURE | {"account_key": "planted-key"}),
        ("gs://bucket", {"service_account_key": '{"planted'}),
        ("gs://bucket", {"service_account_key": '{"private_key":"planted","client_email":"a","private_key_id":"b"}'}),
        ("s3://bucket", {"access_key_id": "planted-id"}),
        ("s3://bucket", S3 | {"endpoint": "user:planted-password@host"}),
    ],
)
async def test_no_error_of_a_wrong_setting_holds_it(url: str, config: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await CloudStore(url, StoreOptions(config=config)).get("a")
    assert "planted" not in "".join(traceback.format_exception(caught.value)).replace(__file__, "")
