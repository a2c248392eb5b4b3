"""An error of a bucket is one line that names the URL."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from shale.errors import AccessDenied, InvalidRequestError, NotFoundError, ShaleError, UnavailableError
from shale.store.adapter_errors import NotSupported, RequestFailed
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from shale.store.port import CREATE, OVERWRITE, PutMode, Update
from shale.telemetry.error_types import ErrorType
from tests.integration.store.servers import http_server, nobody_listening, s3_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bucket(endpoint: str, name: str = "some-bucket", timeout_s: float = 5) -> CloudStore:
    config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "topsecret", "region": "us-east-1"}
    return CloudStore(f"s3://{name}", StoreOptions(config=config, request_timeout_s=timeout_s))


CALLS: dict[str, Callable[[CloudStore], Awaitable[object]]] = {
    "get": lambda store: store.get("db/a"),
    "get_range": lambda store: store.get_range("db/a", 0, 10),
    "head": lambda store: store.head("db/a"),
    "put": lambda store: store.put("db/a", b"1", mode=CREATE),
    "list": lambda store: store.list("db/"),
    "delete": lambda store: store.delete("db/a"),
}
OPS = list(CALLS)


async def failure(store: CloudStore, op: str) -> ShaleError:
    with pytest.raises(ShaleError) as caught:
        await CALLS[op](store)
    text = str(caught.value)
    assert "\n" not in text
    assert "s3://some-bucket" in text
    assert "topsecret" not in text
    return caught.value


@pytest.mark.parametrize("op", OPS)
async def test_a_refused_connection(op: str) -> None:
    with nobody_listening() as port:
        error = await failure(bucket(f"http://127.0.0.1:{port}"), op)
    assert isinstance(error, UnavailableError)
    assert "Connection refused" in str(error)


async def test_a_store_that_does_not_answer() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        error = await failure(bucket(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout_s=0.3), "get")
    assert isinstance(error, RequestFailed)
    assert error.error_type is ErrorType.TIMEOUT


async def test_a_missing_bucket() -> None:
    with s3_server("other") as endpoint:
        for op in ("get", "get_range", "put", "list"):
            assert isinstance(await failure(bucket(endpoint), op), NotFoundError)


@pytest.fixture
def status() -> list[int]:
    return []


@pytest.fixture
def moody_server(status: list[int]) -> Iterator[str]:
    """Run a server that answers with the status codes of a list."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with http_server(Handler) as url:
        yield url


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("code", "class_", "error_type"),
    [
        (401, AccessDenied, None),
        (403, AccessDenied, None),
        (500, RequestFailed, ErrorType.INTERNAL),
        (503, RequestFailed, ErrorType.THROTTLE),
    ],
)
async def test_what_a_status_means(
    moody_server: str, status: list[int], op: str, code: int, class_: type[ShaleError], error_type: ErrorType | None
) -> None:
    status.append(code)
    error = await failure(bucket(moody_server), op)
    assert isinstance(error, class_)
    if isinstance(error, RequestFailed):
        assert error.error_type is error_type


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE, Update('"abc"')], ids=["create", "overwrite", "update"])
async def test_a_store_that_is_busy_with_the_key_decided_nothing(
    moody_server: str, status: list[int], mode: PutMode
) -> None:
    status.append(409)
    with pytest.raises(RequestFailed, match="busy"):
        await bucket(moody_server).put("db/a", b"1", mode=mode)


async def test_a_store_without_conditional_puts(moody_server: str, status: list[int]) -> None:
    status.append(501)
    assert isinstance(await failure(bucket(moody_server), "put"), NotSupported)


def test_an_unknown_option() -> None:
    with pytest.raises(InvalidRequestError, match="nonsense"):
        CloudStore("s3://some-bucket", StoreOptions(config={"nonsense": "1"}))
    with pytest.raises(InvalidRequestError, match="nonsense"):
        CloudStore("s3://some-bucket", StoreOptions(client={"nonsense": "1"}))
