"""Requests to Google Cloud Storage, whose emulators do not support the API that obstore uses."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from shale.errors import InvalidRequestError
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from shale.store.port import CREATE, Update
from tests.integration.store.servers import http_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def seen() -> list[dict[str, str]]:
    return []


@pytest.fixture
def store(seen: list[dict[str, str]]) -> Iterator[CloudStore]:
    """Return a bucket that accepts every request and has generation 1234."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("ETag", '"abc"')
            self.send_header("x-goog-generation", "1234")
            self.send_header("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_HEAD = answer  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None:
            """Write no log."""

    account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    with http_server(Handler) as url:
        key = json.dumps({"gcs_base_url": url, **account})
        yield CloudStore(
            "gs://bucket", StoreOptions(config={"service_account_key": key}, client={"allow_http": "true"})
        )


async def test_conditions_are_generations(store: CloudStore, seen: list[dict[str, str]]) -> None:
    etag = await store.put("db/a", b"1", mode=CREATE)
    assert seen[-1]["x-goog-if-generation-match"] == "0"
    assert etag == '"abc"#1234'
    assert await store.put("db/a", b"2", mode=Update(etag)) == etag
    assert seen[-1]["x-goog-if-generation-match"] == "1234"
    await store.put("db/a", b"3")
    assert "x-goog-if-generation-match" not in seen[-1]


async def test_reads_compare_etags(store: CloudStore, seen: list[dict[str, str]]) -> None:
    meta = await store.head("db/a")
    assert meta is not None
    assert meta.etag == '"abc"#1234'
    await store.get_if_changed("db/a", meta.etag)
    assert seen[-1]["if-none-match"] == '"abc"'


async def test_an_update_without_a_generation_is_our_mistake(store: CloudStore) -> None:
    with pytest.raises(InvalidRequestError, match="generation"):
        await store.put("db/a", b"1", mode=Update('"abc"'))
