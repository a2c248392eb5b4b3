"""Prometheus and Alertmanager with the rules of ``deploy/observability``, and a receiver of notifications."""

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.paths import PYTHONPATH, REPOSITORY
from tests.ports import free_port

RULES = REPOSITORY / "deploy" / "observability"
ALERTMANAGER = ("alertmanager", "prometheus-alertmanager")
STARTED_S = 60.0
ENDED_S = 20.0


class CheckError(Exception):
    """What was expected did not happen in time."""


@contextlib.contextmanager
def process(command: Sequence[str], log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block; its output goes to a file."""
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=log.parent)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(ENDED_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class Receiver:
    """The notifications that Alertmanager has sent: when each alert of each database fired last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fired_s: dict[tuple[str, str], float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.take(body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def take(self, alerts: list[dict[str, Any]]) -> None:
        """Record alerts that fire; the annotations must be complete."""
        with self._lock:
            for alert in alerts:
                labels, notes = alert["labels"], alert["annotations"]
                assert {"summary", "description", "runbook_url", "dashboard_url"} <= set(notes), labels
                if alert["status"] == "firing":
                    self._fired_s[labels["alertname"], labels.get("db", "")] = time.monotonic()

    def fired_s(self, alert: str, db: str, since_s: float) -> float | None:
        """Return the monotonic time of the last notification, unless it is older than ``since_s``."""
        with self._lock:
            fired_s = self._fired_s.get((alert, db), 0.0)
            return fired_s if fired_s >= since_s else None

    def fired(self, db: str) -> list[str]:
        """Return the names of all alerts of a database."""
        with self._lock:
            return sorted(name for name, of in self._fired_s if of == db)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class Monitoring:
    """One Prometheus, one Alertmanager and one receiver; every time of the rules is divided by ``divisor``."""

    def __init__(self, folder: Path, divisor: int) -> None:
        self._folder = folder
        self._divisor = divisor
        self._targets: dict[str, dict[str, str]] = {}
        self._targets_file = folder / "targets.json"
        self.receiver = Receiver()

    def watch(self, port: int, job: str) -> None:
        """Let Prometheus scrape an admin port."""
        self._targets[f"127.0.0.1:{port}"] = {"job": job}
        groups = [{"targets": [address], "labels": labels} for address, labels in self._targets.items()]
        new = self._targets_file.with_suffix(".new")
        new.write_text(json.dumps(groups))
        new.replace(self._targets_file)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run all three until the end of the block."""
        self._targets_file.write_text("[]")
        alertmanager, prometheus = free_port(), free_port()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.receiver.running())
            stack.enter_context(process(self._alertmanager(alertmanager), self._folder / "alertmanager.log"))
            stack.enter_context(process(self._prometheus(prometheus, alertmanager), self._folder / "prometheus.log"))
            for port in (alertmanager, prometheus):
                _wait_until_ready(port)
            yield

    def _alertmanager(self, port: int) -> list[str]:
        times = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
        route = {"receiver": "check", "group_by": ["..."], **times}
        config = {"route": route, "receivers": [{"name": "check", "webhook_configs": [{"url": self.receiver.url}]}]}
        file = self._folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(config))
        return [
            _program(*ALERTMANAGER), f"--config.file={file}", f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip

    def _prometheus(self, port: int, alertmanager: int) -> list[str]:
        rules = self._folder / "rules"
        command = [sys.executable, str(RULES / "generate.py"), "--divisor", str(self._divisor), "--rules", str(rules)]
        subprocess.run(command, check=True, env={"PYTHONPATH": PYTHONPATH})
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{rules}/*.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
            "scrape_configs": [
                {
                    "job_name": "shale",
                    "file_sd_configs": [{"files": [str(self._targets_file)], "refresh_interval": "1s"}],
                }
            ],
        }
        file = self._folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config))
        return [
            _program("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={self._folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip


def _program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise CheckError(f"{' or '.join(names)} is not on the PATH; Debian has it in a package of that name")
    return found


def _wait_until_ready(port: int) -> None:
    deadline_s = time.monotonic() + STARTED_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1):
            return
        time.sleep(0.1)
    raise CheckError(f"nothing is ready on port {port}")
