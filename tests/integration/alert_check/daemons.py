"""Daemons whose admin port Prometheus scrapes, and a store that can be cut off or have a wrong clock."""

import contextlib
import email.utils
import http.client
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import S3Store

from tests.integration.alert_check.monitoring import CheckError, Monitoring, process
from tests.paths import PYTHONPATH
from tests.ports import free_port

if TYPE_CHECKING:
    from subprocess import Popen

READY_S, HELD_S = 60.0, 600.0
S3 = {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_REGION": "us-east-1"}


class Daemon:
    """One daemon; its log is a file."""

    def __init__(self, child: "Popen[bytes]", log: Path, port: int) -> None:
        self.child = child
        self.log = log
        self.port = port

    def wait_for(self, event: str) -> None:
        """Wait for a log line."""
        wait_until(lambda: f'"{event}"' in self.log.read_text(), f"{event} in {self.log}")

    def put(self, key: str, value: bytes, *, durability: str = "durable", timeout_s: float = 10.0) -> bool:
        """Write a row; return whether it was taken."""
        url, headers = f"http://127.0.0.1:{self.port}/v1/kv/{key}", {"X-Shale-Durability": durability}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, value, headers, method="PUT"), timeout=timeout_s):
                return True
        except (urllib.error.HTTPError, OSError, http.client.HTTPException):
            return False


class Place:
    """One database of the check, which ``db`` names in metrics and alerts."""

    def __init__(self, monitoring: Monitoring, folder: Path, db: str, url: str = "", endpoint: str = "") -> None:
        self.monitoring = monitoring
        self.folder = folder
        self.db = db
        self.url = url or f"file://{folder}/store/orders"
        self.endpoint = endpoint
        self._count = 0

    @property
    def files(self) -> Path:
        """The directory of the database."""
        return self.folder / "store" / "orders"

    @contextlib.contextmanager
    def daemon(self, module: str, *settings: str, endpoint: str = "") -> Iterator[Daemon]:
        """Run a daemon; Prometheus scrapes it from its start."""
        self._count += 1
        port, admin = free_port(), free_port()
        words = ["--url", self.url, "--admin-port", str(admin)]
        if module in ("shale_writer", "shale_reader"):
            words += ["--port", str(port)]
        chosen = [f"database.alias={self.db}", "shutdown.linger=10m", *settings]
        if address := endpoint or self.endpoint:
            chosen.append(f"store.endpoint={address}")
        words += [word for setting in chosen for word in ("--set", setting)]
        log = self.folder / f"{module}-{self._count}.log"
        self.monitoring.watch(admin, module.replace("_", "-"))
        environment = {**os.environ, **S3, "PYTHONPATH": PYTHONPATH}
        with process([sys.executable, "-m", module, *words], log, environment) as child:
            yield Daemon(child, log, port)

    @contextlib.contextmanager
    def writer(self, *settings: str) -> Iterator[Daemon]:
        """Run a writer and wait until it is ready."""
        with self.daemon("shale_writer", *settings) as writer:
            writer.wait_for("daemon.ready")
            yield writer


def wait_until(is_right: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + timeout_s
    while not is_right():
        if time.monotonic() > deadline_s:
            raise CheckError(f"no {what} within {timeout_s:g} s")
        time.sleep(0.05)


@contextlib.contextmanager
def writing(writer: Daemon, *, size: int = 100, durability: str = "durable") -> Iterator[None]:
    """Write a row every tenth of a second until the end of the block."""
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.wait(0.1):
            number += 1
            writer.put(f"row{number:06}", b"x" * size, durability=durability, timeout_s=2.0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


class S3Proxy:
    """Passes requests on to a store; it can refuse or delay them, and it can change the clock of the store."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.is_down = False
        self.delayed = ""
        """Writes of objects whose path contains this wait for ``go_on``, if it is not empty."""
        self.waiting: list[str] = []
        """The paths of those that wait."""
        self.go_on = threading.Event()
        self.ahead_s = 0.0
        host = upstream.removeprefix("http://")
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                if proxy.is_down:
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "PUT" and proxy.delayed and proxy.delayed in self.path:
                    proxy.waiting.append(self.path)
                    proxy.go_on.wait(HELD_S)
                connection = http.client.HTTPConnection(host, timeout=30)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() == "last-modified":
                        value = proxy.shifted(value)  # noqa: PLW2901
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                if answer.getheader("Content-Length") is None:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815 - the names in the base class

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def shifted(self, date: str) -> str:
        """Return a date of the store as its wrong clock shows it."""
        seconds = email.utils.parsedate_to_datetime(date).timestamp() + self.ahead_s
        return email.utils.formatdate(seconds, usegmt=True)

    def exists(self, path: str) -> bool:
        """Whether the store has the object of a request."""
        _, bucket, key = path.split("/", 2)
        config = {name.lower(): value for name, value in S3.items()}
        store = S3Store(bucket, endpoint=self.upstream, config=config, client_options={"allow_http": True})
        try:
            store.head(key)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator["S3Proxy"]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[S3Proxy]:
    """Run an S3 server with the bucket ``bucket``, after a proxy."""
    log = folder / "s3.log"
    command = [sys.executable, "-u", "-m", "shale.testing.s3_server", "0", "--bucket", "bucket"]
    with process(command, log, {**os.environ, "PYTHONPATH": PYTHONPATH}):
        wait_until(lambda: "http://" in log.read_text(), "address of the S3 server")
        with S3Proxy(log.read_text().splitlines()[0]).running() as proxy:
            yield proxy
