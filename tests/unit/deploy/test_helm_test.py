"""``helm test`` writes, reads and deletes a row through the Service of each writer."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.certificates import Authority

from .chart import MINIMAL, container, of_kind, render


@contextmanager
def server(status: int, token: str = "", *, forgets: bool = False, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve one status, and rows for those that have the token, on a free port."""
    rows: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self, code: int, body: bytes = b"") -> None:
            allowed = not token or self.headers["Authorization"] == f"Bearer {token}"
            self.send_response(code if allowed else 401)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if not self.path.startswith("/v1/kv/"):
                self.answer(status)
            elif self.path in rows:
                self.answer(200, rows[self.path])
            else:
                self.answer(404)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not forgets:
                rows[self.path] = body
            self.answer(204)

        def do_DELETE(self) -> None:
            rows.pop(self.path, None)
            self.answer(204)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Write nothing."""

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True)
    thread = Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield listening.server_port
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
    assert rows == {}, "the test leaves no row"


ANY_NAME = """
import socket
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *others, **named: resolve("127.0.0.1", *others, **named)
"""


def helm_test(
    folder: Path,
    ready: int,
    http: int,
    *,
    token: str | None,
    values: tuple[str, ...] = (),
    tls: ssl.SSLContext | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the script of the pod; names of Services lead to this machine, and its files of TLS are in the folder."""
    (pod,) = of_kind(render(*MINIMAL, *values), "Pod").values()
    script, path, *others = container({"spec": pod["spec"]})["args"]
    assert (path, others) == ("/etc/shale/token/token", ["9464", "r-shale-writer:8080"])
    file = folder / "token"
    if token is not None:
        file.write_text(token)
    script = script.replace("/etc/shale/tls", str(folder))
    with server(ready, tls=tls) as admin:
        command = [sys.executable, "-c", ANY_NAME + script, str(file), str(admin), f"r-shale-writer:{http}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ready", "answer", "passes"), [(200, 200, True), (200, 401, True), (503, 200, False), (200, 500, False)]
)
def test_the_script_of_helm_test(ready: int, answer: int, passes: bool, tmp_path: Path) -> None:
    with server(answer) as http:
        ended = helm_test(tmp_path, ready, http, token=None)
    assert (ended.returncode == 0) == passes, ended.stderr
    assert f"ready: {ready}" in ended.stdout
    assert ("put: 204" in ended.stdout) == (passes and answer == 200)


@pytest.mark.parametrize(("token", "passes"), [("new old\n", True), ("wrong", False)])
def test_helm_test_writes_with_the_first_token(token: str, passes: bool, tmp_path: Path) -> None:
    with server(200, "new") as http:
        ended = helm_test(tmp_path, 200, http, token=token)
    assert (ended.returncode == 0) == passes, ended.stderr
    assert ("put: 204 get: 200 delete: 204 get: 404" in ended.stdout) == passes


def test_helm_test_fails_if_a_row_is_lost(tmp_path: Path) -> None:
    with server(200, forgets=True) as http:
        assert helm_test(tmp_path, 200, http, token=None).returncode == 1


@pytest.mark.parametrize(
    ("auth", "key"),
    [("secretKey=token", "token"), ("secretKey=,auth.roleKeys.write=writers", "writers")],
)
def test_the_pod_of_helm_test_has_a_token_that_writes(auth: str, key: str) -> None:
    (pod,) = of_kind(render(*MINIMAL, "--set", f"auth.existingSecret=tokens,auth.{auth}"), "Pod").values()
    (volume,) = pod["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "tokens", "items": [{"key": key, "path": "token"}]}
    (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/etc/shale/token"


TLS = ("--set", "tls.existingSecret=orders-tls,tls.secretKeys.ca=ca.crt,tls.serverName=localhost")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ((), True),
        (("--set", "tls.serverName=orders.example.com"), False),
    ],
)
def test_helm_test_checks_the_certificate(more: tuple[str, ...], passes: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server"))
    authority.ca_file.rename(tmp_path / "ca.crt")
    with server(200, tls=context) as http:
        ended = helm_test(tmp_path, 200, http, token=None, values=(*TLS, *more), tls=context)
    assert (ended.returncode == 0) == passes, ended.stderr
    assert ("put: 204 get: 200 delete: 204 get: 404" in ended.stdout) == passes
    assert ("Hostname mismatch" in ended.stderr) != passes


@pytest.mark.slow
@pytest.mark.parametrize("required", [True, False])
def test_helm_test_shows_a_certificate_if_clients_need_one(required: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca_file))
    context.load_cert_chain(*authority.issue("tls"))
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca_file.rename(tmp_path / "ca.crt")
    values = (*TLS, "--set", f"tls.clientCertificates.required={str(required).lower()}")
    with server(200, tls=context) as http:
        ended = helm_test(tmp_path, 200, http, token=None, values=values, tls=context)
    assert (ended.returncode == 0) == required, ended.stderr
