"""Requests to Google Cloud Storage, and why fake-gcs-server cannot stand in for it: it refuses the API of obstore."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError, UnavailableError
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from shale.store.port import CREATE, Update
from tests.integration.store.servers import child_process, http_server, wait_for_port
from tests.integration.store.versitygw import find_program
from tests.ports import free_port

pytestmark = pytest.mark.anyio
WITHOUT_LOGIN = json.dumps({"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})


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

    with http_server(Handler) as url:
        yield CloudStore("gs://bucket", StoreOptions(config={"endpoint": url, "service_account_key": WITHOUT_LOGIN}))


async def test_conditions_are_generations(store: CloudStore, seen: list[dict[str, str]]) -> None:
    etag = await store.put("db/a", b"1", mode=CREATE)
    assert seen[-1]["x-goog-if-generation-match"] == "0"
    assert etag == '"abc"#1234'
    assert await store.put("db/a", b"2", mode=Update(etag)) == etag
    assert seen[-1]["x-goog-if-generation-match"] == "1234"
    await store.put("db/a", b"3")
    assert "x-goog-if-generation-match" not in seen[-1]


async def test_an_endpoint_of_the_environment_may_be_without_tls(
    store: CloudStore, seen: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("db/a", b"1")
    monkeypatch.setenv("GOOGLE_BASE_URL", f"http://{seen[-1]['host']}")
    again = CloudStore("gs://bucket", StoreOptions(config={"service_account_key": WITHOUT_LOGIN}))
    await again.put("db/b", b"2")
    assert len(seen) == 2


async def test_reads_compare_etags(store: CloudStore, seen: list[dict[str, str]]) -> None:
    meta = await store.head("db/a")
    assert meta is not None
    assert meta.etag == '"abc"#1234'
    await store.get_if_changed("db/a", meta.etag)
    assert seen[-1]["if-none-match"] == '"abc"'


async def test_an_update_without_a_generation_is_our_mistake(store: CloudStore) -> None:
    with pytest.raises(InvalidRequestError, match="generation"):
        await store.put("db/a", b"1", mode=Update('"abc"'))


@pytest.mark.skipif(
    find_program("fake-gcs-server") is None,
    reason="fake-gcs-server is not here: go install github.com/fsouza/fake-gcs-server@v1.56.1",
)
async def test_fake_gcs_server_refuses_a_create(tmp_path: Path) -> None:
    """If this fails, docs/how-to/gcs.md is out of date, and the local stack may have a profile for it."""
    (tmp_path / "bucket").mkdir()
    port = free_port()
    address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    program = find_program("fake-gcs-server")
    assert program is not None
    with child_process([program, *address, "-backend", "filesystem", "-filesystem-root", str(tmp_path)]):
        wait_for_port(port)
        config = {"endpoint": f"http://127.0.0.1:{port}", "service_account_key": WITHOUT_LOGIN}
        store = CloudStore("gs://bucket", StoreOptions(config=config))
        assert await store.head("db/a") is None
        with pytest.raises(UnavailableError, match=r"400.*invalid uploadType"):
            await store.put("db/a", b"1", mode=CREATE)
        await store.aclose()
