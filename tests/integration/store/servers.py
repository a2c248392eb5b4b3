"""Object-store servers as child processes, each stopped by its own process id."""

import base64
import datetime
import hashlib
import hmac
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.forks import ROOT, Fork

AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The published key of the emulator's only account: not a secret."""


@contextmanager
def s3_server(bucket: str, *options: str) -> Iterator[str]:
    """Run the S3 server of ``shale.testing`` on a free port; yields its URL."""
    said, says = os.pipe()
    with os.fdopen(said) as lines:
        with os.fdopen(says, "w") as out, Path(os.devnull).open("rb") as null:
            arguments = ("0", "--bucket", bucket, *options)
            child = Fork("shale.testing.s3_server", *arguments, env=os.environ, folder=ROOT, stdio=(null, out, 2))
        try:
            url = lines.readline().strip()
            assert url.startswith("http://"), "the server did not start"
            yield url
        finally:
            child.terminate()
            child.wait(10)


@contextmanager
def azurite(container: str) -> Iterator[dict[str, str]]:
    """Run Azurite with one container; yields the configuration for obstore."""
    port = free_port()
    arguments = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    with _child(["azurite-blob", *arguments, "--blobHost", "127.0.0.1", "--blobPort", str(port)]):
        _wait_for(port)
        _create_container(port, container)
        yield {
            "account_name": "devstoreaccount1",
            "account_key": AZURITE_KEY,
            "endpoint": f"http://127.0.0.1:{port}/devstoreaccount1",
        }


@contextmanager
def nobody_listening() -> Iterator[int]:
    """A port at which connections are refused: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _child(command: list[str]) -> Iterator[None]:
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait(10)


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start")


def _create_container(port: int, container: str) -> None:
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    path = f"/devstoreaccount1/{container}"
    canonical = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n/devstoreaccount1{path}\nrestype:container"
    text = "PUT\n" + "\n" * 11 + canonical
    signature = hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey devstoreaccount1:{base64.b64encode(signature).decode()}",
        },
    )
    urllib.request.urlopen(request).close()
