"""The client process of the check, and what the database holds."""

import base64
import json
import sys

from tests.kube.errors import KubeCheckError
from tests.kube.layout import Layout
from tests.kube.load import history
from tests.kube.load.history import Write
from tests.kube.node import Node
from tests.kube.processes import Processes, run, wait_for
from tests.paths import PYTHONPATH

STOP_S, WRITES_S = 60.0, 120.0


class Workload:
    """A client that writes through a Service, from the network of a node."""

    def __init__(self, layout: Layout, node: Node, processes: Processes, address: str, port: int) -> None:
        self._folder = layout.state / "client"
        self._folder.mkdir()
        self._node = node
        self._processes = processes
        self._address, self._port = address, port
        self._history = self._folder / "history.jsonl"
        self._history.touch()
        self._stop = self._folder / "stop"
        self._token = self._folder / "token"

    def use_token(self, token: str) -> None:
        """Let all further requests carry this token."""
        fresh = self._token.with_suffix(".new")
        fresh.write_text(token)
        fresh.replace(self._token)

    def start(self) -> None:
        """Start the client; it continues after the numbers of the history."""
        self._stop.unlink(missing_ok=True)
        after = max((write.number for write in self.writes()), default=0)
        command = [sys.executable, "-m", "tests.kube.load.client", "--host", self._address, "--port", str(self._port)]
        command += ["--token-file", str(self._token), "--history", str(self._history), "--stop", str(self._stop)]
        command += ["--after", str(after)]
        self._processes.start("client", self._node.inside(*command), env={"PYTHONPATH": PYTHONPATH})

    def stop(self) -> None:
        """Let the client finish its writes and end."""
        self._stop.touch()
        self._processes.wait("client", STOP_S)

    def writes(self) -> list[Write]:
        """Return the history so far."""
        text = self._history.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [Write(**json.loads(line)) for line in whole.splitlines()]

    def wait_acknowledged(self, since: float, count: int = 20) -> float:
        """Wait until ``count`` writes that began after ``since`` are acknowledged; return the time of the first."""

        def look() -> float | None:
            ends = [write.end for write in self.writes() if write.outcome == "acknowledged" and write.start > since]
            return min(ends) if len(ends) >= count else None

        return wait_for("acknowledged writes", WRITES_S, look)[0]

    def rows(self) -> dict[str, str]:
        """Scan the whole database through the Service."""
        status, text = self._request("POST", "/v1/scan", self._token.read_text(), "{}")
        if status != "200":
            raise KubeCheckError(f"scan: {status} {text}")
        *lines, end = (json.loads(line) for line in text.splitlines())
        if not end.get("end"):
            raise KubeCheckError(f"the scan ended early: {end}")
        return {_text(line["key"]): _text(line["value"]) for line in lines}

    def is_refused(self, token: str) -> bool | None:
        """Return whether a token is not accepted any more."""
        return True if self._request("GET", "/v1/writer", token)[0] == "401" else None

    def check(self) -> int:
        """Compare the database with the history, while no client writes; return the number of acknowledged writes.

        Raises:
            KubeCheckError: an acknowledged write is lost, or a row is there that nothing wrote.
        """
        self.stop()
        writes = self.writes()
        if found := history.differences(writes, self.rows()):
            raise KubeCheckError(f"{len(found)} differences: " + "; ".join(found[:5]))
        self.start()
        return sum(write.outcome == "acknowledged" for write in writes)

    def _request(self, method: str, path: str, token: str, body: str = "") -> tuple[str, str]:
        url = f"http://{self._address}:{self._port}{path}"
        command = self._node.inside(sys.executable, "-m", "tests.kube.load.one_request", method, url, token)
        status, text = run(command, stdin=body, env={"PYTHONPATH": PYTHONPATH}).split("\n", 1)
        return status, text


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
