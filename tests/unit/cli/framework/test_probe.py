"""The health check without a framework that containers run every few seconds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from shale_cli.__main__ import main
from shale_cli.framework.probe import probe


@contextmanager
def answering(status: int, text: str) -> Iterator[str]:
    """Start a server with one fixed response; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(f"{self.path}: {text}".encode())

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, "ok") as port:
        monkeypatch.setenv("SHALE_ADMIN__PORT", port)
        assert main(["healthcheck"]) == 0
        assert main(["healthcheck", "--endpoint", "livez"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_failing_check_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(503, "fenced") as port:
        assert probe(f"127.0.0.1:{port}") == 4
    assert capsys.readouterr() == ("", f"shale: 127.0.0.1:{port}/readyz: /readyz: fenced\n")


def test_the_plain_form_loads_no_framework() -> None:
    """Typer and pydantic alone take a quarter of a second of CPU."""
    program = (
        "import sys; from shale_cli.__main__ import main; code = main(['healthcheck']); "
        "print(code, sorted({'typer', 'pydantic', 'numpy', 'shale'} & set(sys.modules)))"
    )
    environment = {**os.environ, "SHALE_ADMIN__PORT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout == "4 []\n"
    assert ended.stderr.startswith("shale: 127.0.0.1:1/readyz: ")
