"""Object-store servers as child processes, each stopped by its own process id."""

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from deploy.compose.azure_container import ACCOUNT, KEY, create_container
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from tests import cas_selection
from tests.external_tools import require_tool
from tests.paths import REPOSITORY
from tests.ports import free_port
from tests.processes.forks import Fork

SECRET = "test"
"""The access key of S3 servers, and its secret."""


@contextmanager
def s3_server(bucket: str, *options: str) -> Iterator[str]:
    """Run the S3 server of ``shale.testing`` on a free port; yields its URL."""
    if cas_selection.selected() is not None and "--ignore-conditions" not in options:
        options = (*options, "--ignore-conditions")
    said, says = os.pipe()
    with os.fdopen(said) as lines:
        with os.fdopen(says, "w") as out, Path(os.devnull).open("rb") as null:
            arguments = ("0", "--bucket", bucket, *options)
            child = Fork("shale.testing.s3_server", *arguments, env=os.environ, folder=REPOSITORY, stdio=(null, out, 2))
        try:
            url = lines.readline().strip()
            assert url.startswith("http://"), "the server did not start"
            yield url
        finally:
            child.terminate()
            child.wait(10)


def s3_environment(url: str) -> dict[str, str]:
    """Return the environment that configures cloud tools for a server."""
    return {
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }


@asynccontextmanager
async def empty_s3_store(endpoint: str, bucket: str) -> AsyncIterator[CloudStore]:
    """Connect to a bucket and delete what earlier tests left in it; closes the store at the end."""
    config = {"endpoint": endpoint, "access_key_id": SECRET, "secret_access_key": SECRET, "region": "us-east-1"}
    async with emptied(CloudStore(f"s3://{bucket}", StoreOptions(config=config))) as store:
        yield store


@asynccontextmanager
async def emptied(store: CloudStore) -> AsyncIterator[CloudStore]:
    """Delete all objects of a store; closes it at the end."""
    for meta in await store.list(""):
        await store.delete(meta.key)
    yield store
    await store.aclose()


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port in a thread; yields the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def azurite(container: str) -> Iterator[dict[str, str]]:
    """Run Azurite with one container; yields the configuration for obstore."""
    port = free_port()
    arguments = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    with child_process([require_tool("azurite-blob"), *arguments, "--blobHost", "127.0.0.1", "--blobPort", str(port)]):
        wait_for_port(port)
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        create_container(endpoint, container)
        yield {
            "account_name": ACCOUNT,
            "account_key": KEY,
            "endpoint": endpoint,
        }


@contextmanager
def nobody_listening() -> Iterator[int]:
    """Return a port that refuses connections: it is bound, and no socket listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def child_process(command: list[str]) -> Iterator[None]:
    """Run a program that writes to no terminal, and stop it at the end."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait(10)


def wait_for_port(port: int) -> None:
    """Wait until something listens on a port of the loopback address."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start")
