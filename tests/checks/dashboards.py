"""Query every panel of every dashboard after a load: ``make dashboard-check`` (not in the default tests).

Four daemons on a directory get calls on HTTP and RESP, and a real Prometheus scrapes them and evaluates our rules.  A
panel without any point in the last minute is empty.  ``CONDITIONAL`` lists those that may be, and what they need.
Another empty panel, or a query with an error, fails the check.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
import yaml

from tests.external_tools import find_tool
from tests.integration.daemons.daemon_process import Daemon, running
from tests.integration.writer.writer_process import Client
from tests.paths import REPOSITORY

OBSERVABILITY = REPOSITORY / "deploy" / "observability"
LOAD_S = 60.0
STEP_S = 5
CONDITIONAL = {
    "Requests of Spark": "a process of Spark that is scraped",
    "Duration of Spark": "jobs of 1 GiB",
    "Estimated end": "a compaction that takes longer than a scrape",
    "Recovery": "a compaction that was taken over",
    "Share of work preserved": "a compaction that was taken over",
    "Silence of the active writer": "a standby",
    "Takeovers": "a standby",
    "Duration of the last takeover": "a standby",
    "Hits": "a disk cache",
    "Content": "a disk cache",
    "Parts": "a disk cache",
    "Commit records": "two-phase creates",
}
"""What a panel shows nothing without."""
VALUES = {
    "$__rate_interval": "20s", "$price_write": "0.005", "$price_read": "0.0004",
    "$cluster": ".*", "$namespace": ".*", "$db": ".*", "$instance": ".*",
}  # fmt: skip


class Server:
    """A Prometheus on loopback."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, path: str, **fields: str) -> Any:
        """Return the data of an answer, or raise with the text of an error."""
        url = f"{self._url}{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(json.load(error)["error"]) from error

    def has_points(self, expression: str) -> bool:
        """Tell whether an expression has a number anywhere in the last minute."""
        now = time.time()
        fields = {"start": str(now - LOAD_S), "end": str(now), "step": str(STEP_S)}
        series = self.ask("query_range", query=expression, **fields)["result"]
        return any(value != "NaN" for one in series for _, value in one["values"])


@contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[Server]:
    """Run a Prometheus that scrapes daemons every second."""
    binary = find_tool("prometheus")
    if binary is None:
        raise SystemExit("prometheus is not on the PATH: make tools")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "2s"},
        "rule_files": [str(OBSERVABILITY / "rules" / "*.yaml")],
        "scrape_configs": [{"job_name": "shale", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    command = [binary, *options, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield Server(port)
        finally:
            process.terminate()


def load(writer: Client, reader: Client, seconds: float) -> int:
    """Write, read, scan and delete on every port; return the number of rounds."""
    rows = redis.Redis(port=writer.daemon.port("resp_port"))
    end, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turn += 1
        ops = [["put", b"k%04d-%04d" % (turn, number), b"v" * 200] for number in range(500)]
        status, body, _ = writer.post("/v1/batch", {"ops": ops}, packed=True)
        assert status == 200, body
        writer.put(b"one", b"%d" % turn)
        writer.get(b"one")
        writer.get(b"none%d" % turn)
        reader.get(b"one")
        writer.scan(limit=100)
        rows.set("two", turn)
        rows.get("two")
        if turn % 10 == 0:
            writer.call("POST", "/v1/admin/flush")
        time.sleep(0.05)
    rows.close()
    return turn


def panels() -> Iterator[tuple[str, str, list[str]]]:
    """Return dashboard, title and queries of every panel, and of every annotation."""
    for file in sorted((OBSERVABILITY / "dashboards").glob("*.json")):
        tree = json.loads(file.read_text())
        row = ""
        for panel in tree["panels"]:
            if panel["type"] == "row":
                row = panel["title"]
            else:
                title = (
                    f"{panel['title']} of Spark" if "Spark" in row and panel["title"] == "Duration" else panel["title"]
                )
                yield tree["uid"], title, [target["expr"] for target in panel["targets"]]


def plain(expression: str) -> str:
    """Return an expression with values for Grafana's variables."""
    return re.sub("|".join(map(re.escape, VALUES)), lambda found: VALUES[found[0]], expression)


def empty_panels(server: Server) -> list[str]:
    """Return the panels without a point that must have one."""
    problems: dict[str, None] = {}
    for uid, title, queries in panels():
        found = [server.has_points(plain(query)) for query in queries]  # all of them: an error in any is an error
        if not any(found) and title not in CONDITIONAL:
            problems[f"{uid}: {title}"] = None
    return list(problems)


@contextmanager
def stack(folder: Path) -> Iterator[list[Daemon]]:
    """Run writer, compactor, gc and reader on one directory."""
    url = f"file://{folder}/store/orders"
    with ExitStack() as daemons:

        def start(module: str, *options: str) -> Daemon:
            return daemons.enter_context(running(module, "--url", url, *options, log=folder / f"{module}.log"))

        settings = ("l0_sst_size_bytes=256KiB", "resp.enabled=true", "resp.port=0")
        writer = start("shale_writer", "--port", "0", *(part for each in settings for part in ("--set", each)))
        writer.port("port")
        compactor = start("shale_compactor", "--set", "compactor_options.poll_interval=1s")
        intervals = (f"garbage_collector_options.{kind}_options.interval=5s" for kind in ("manifest", "wal"))
        gc = start("shale_gc", *(part for each in intervals for part in ("--set", each)))
        reader = start("shale_reader", "--port", "0", "--set", "manifest_poll_interval=1s")
        yield [writer, compactor, gc, reader]


def main() -> int:
    """Run the check; return 1 if a panel is empty."""
    with tempfile.TemporaryDirectory(prefix="shale-dashboards-") as name, stack(Path(name)) as daemons:
        targets = [f"127.0.0.1:{daemon.port('admin_port')}" for daemon in daemons]
        with prometheus(Path(name), targets) as server:
            rounds = load(Client(daemons[0]), Client(daemons[3]), LOAD_S)
            problems = empty_panels(server)
    count = sum(1 for _ in panels())
    sys.stdout.write("".join(f"empty: {problem}\n" for problem in problems))
    sys.stdout.write(f"{count} panels, {len(problems)} empty, after {rounds} rounds of load in {LOAD_S:.0f} s\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
