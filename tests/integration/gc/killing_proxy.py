"""A server between a process and its S3 server that kills the process at a chosen request."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

_NOT_PASSED_ON = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class Victim(Protocol):
    """The process to kill; ``subprocess.Popen`` is one."""

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> object: ...


class Kill(Enum):
    """The side of a request on which the process is killed."""

    BEFORE = "before"
    """The store never sees it."""
    AFTER = "after"
    """The request is executed and its response is lost."""


@dataclass(frozen=True)
class Seen:
    """A request: its number, from 0, since the process started, and its content."""

    number: int
    method: str
    path: str
    body: bytes


Choose = Callable[[Seen], Kill | None]


@dataclass
class Gate:
    """Forwards requests until ``choose`` selects one."""

    upstream: str
    url: str = ""
    victim: Victim | None = None
    killed_at: Seen | None = None
    count: int = 0
    _choose: Choose = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, victim: Victim, choose: Choose) -> None:
        """Count the requests of a process that has not sent any."""
        self.victim, self._choose, self.killed_at, self.count = victim, choose, None, 0

    def decide(self, method: str, path: str, body: bytes) -> Kill | None:
        """Number a request; only one of them is chosen."""
        with self._lock:
            seen = Seen(self.count, method, unquote(path), body)
            self.count += 1
            kill = self._choose(seen) if self.killed_at is None else None
            if kill is not None:
                self.killed_at = seen
            return kill

    def strike(self) -> None:
        """Kill the process with SIGKILL; return when it has ended."""
        assert self.victim is not None
        self.victim.kill()
        self.victim.wait(30)


@contextmanager
def gate_to(upstream: str) -> Iterator[Gate]:
    """Serve on a free port in threads of this process."""
    gate = Gate(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kill = gate.decide(self.command, self.path, body)
            if kill is Kill.BEFORE:
                gate.strike()
            else:
                answer = _answer(gate.upstream, self.command, self.path, body, dict(self.headers))
                if kill is Kill.AFTER:
                    gate.strike()
                else:
                    self._send(*answer)
                    return
            self.close_connection = True

        def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in _NOT_PASSED_ON:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(body)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._pass_on
            raise AttributeError(name)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            """Write nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore the closed connection of a killed process."""

    server = Server(("127.0.0.1", 0), Handler)
    gate.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _answer(
    upstream: str, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
