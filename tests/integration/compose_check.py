"""The compose stack on a real engine: ``make compose-check`` (docs/how-to/containers.md, not in the default suite).

Checks: the image keeps its size; everything is healthy within 60 s; rows written before a hard kill of each daemon are
read after it, at the writer and then at the reader; a writer that is stopped under load ends with 0 and loses no
acknowledged row; Prometheus has every target up and knows how far the reader lags; Grafana shows the dashboards to
anonymous users and reaches Prometheus; ``down`` takes at most 15 s.
``BASE_IMAGE`` chooses the base of the images.  Where no registry can be reached, ``PROMETHEUS_BINARIES=/usr/bin`` makes
an image of the ``prometheus`` and ``promtool`` found there, and Grafana is left out unless ``GRAFANA_IMAGE`` names one.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY

PROJECT = "shale-check"
DAEMONS = ("writer", "compactor", "worker", "gc", "reader")
DASHBOARDS = REPOSITORY / "deploy" / "observability" / "dashboards"
ROWS = 2000
IMAGE_BYTES = 450_000_000
HEALTHY_S, DOWN_S, SCRAPED_S = 60.0, 15.0, 60.0
# A reader looks for news every `manifest_poll_interval`, 10 s by default.
FOLLOWED_S = 30.0
LAG_METRIC = "slatedb_reader_visible_timestamp_seconds"


class CheckError(Exception):
    """A difference between the stack and its description."""


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


class Engine:
    """The container engine and its compose, with the environment of one stack."""

    def __init__(self) -> None:
        # Debian's client builds with BuildKit without a plug-in; another one may come first on PATH.
        self.docker = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        plugin = subprocess.run([self.docker, "compose", "version"], capture_output=True, check=False).returncode == 0
        self._compose = [self.docker, "compose"] if plugin else ["docker-compose"]
        self.port, self.reader_port = _free_port(), _free_port()
        self.prometheus_port, self.grafana_port = _free_port(), _free_port()
        self.has_registry = "PROMETHEUS_BINARIES" not in os.environ
        self.has_grafana = self.has_registry or "GRAFANA_IMAGE" in os.environ
        self.services = ("store", *DAEMONS, "prometheus", *(["grafana"] if self.has_grafana else []))
        self.env = {
            **os.environ,
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_PROJECT_NAME": PROJECT,
            "SHALE_PORT": str(self.port),
            "SHALE_READER_PORT": str(self.reader_port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "GRAFANA_PORT": str(self.grafana_port),
        }

    def run(self, *args: str, quiet: bool = True) -> str:
        """Run a command of the engine and return what it prints."""
        return self._call([self.docker, *args], quiet=quiet)

    def compose(self, *args: str) -> str:
        """Run a command of compose."""
        return self._call([*self._compose, *args], quiet=True)

    def _call(self, command: list[str], *, quiet: bool) -> str:
        done = subprocess.run(command, cwd=REPOSITORY, env=self.env, capture_output=quiet, text=True, check=False)
        if done.returncode != 0:
            raise CheckError(
                f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout or ''}{done.stderr or ''}"
            )
        return done.stdout or ""

    def health(self, service: str) -> str:
        """Return the health of the containers of a service, if it is the same for all of them."""
        containers = self.compose("ps", "-q", service).split()
        if not containers:
            return "absent"
        states = [each["State"] for each in json.loads(self.run("inspect", *containers))]
        return "/".join(sorted({str(state.get("Health", {}).get("Status", state["Status"])) for state in states}))


def build(engine: Engine) -> None:
    """Build the images of the stack."""
    base = ["--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}"] if "BASE_IMAGE" in os.environ else []
    for target, image in (("runtime", "shale:local"), ("store", "shale-store:local")):
        start = time.monotonic()
        engine.run("build", *base, "--target", target, "-t", image, ".")
        size = int(json.loads(engine.run("inspect", image))[0]["Size"])
        _say(f"built {image} in {time.monotonic() - start:.0f} s, {size / 1e6:.0f} MB")
        if target == "runtime" and size > IMAGE_BYTES:
            raise CheckError(f"the image of the daemons may have {IMAGE_BYTES / 1e6:.0f} MB")
    if engine.has_registry:
        engine.compose("pull", "prometheus", "grafana")
        return
    binaries = os.environ["PROMETHEUS_BINARIES"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("prometheus", "promtool"):
            shutil.copy(Path(binaries) / name, folder)
        lines = (
            f"FROM {os.environ.get('BASE_IMAGE', 'python:3.12-slim')}",
            "COPY prometheus promtool /bin/",
            "RUN mkdir /prometheus && chown 65534:65534 /prometheus",
            "USER 65534:65534",
            'ENTRYPOINT ["/bin/prometheus"]',
        )
        Path(folder, "Dockerfile").write_text("\n".join(lines) + "\n")
        engine.run("build", "-t", "shale-prometheus:local", folder)
    engine.env["PROMETHEUS_IMAGE"] = "shale-prometheus:local"


def wait_until(what: str, limit_s: float, look: Callable[[], str | None]) -> float:
    """Poll until there is no complaint; return the seconds it took."""
    start = time.monotonic()
    while (complaint := look()) is not None:
        if time.monotonic() - start > limit_s:
            raise CheckError(f"{what}: after {limit_s:.0f} s {complaint}")
        time.sleep(0.5)
    return time.monotonic() - start


def unhealthy(engine: Engine) -> str | None:
    """Return the services that are not healthy."""
    states = {service: engine.health(service) for service in engine.services}
    bad = {service: state for service, state in states.items() if state != "healthy"}
    return str(bad) if bad else None


def call(port: int, path: str, body: Any) -> bytes:
    """Call the writer or the reader."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_rows(engine: Engine, batch: int) -> None:
    """Write one batch, durably."""
    ops = [["put", _b64(b"%d/%06d" % (batch, row)), _b64(b"value %d" % row)] for row in range(ROWS)]
    call(engine.port, "/v1/batch", {"ops": ops})


def missing_rows(port: int, batches: int) -> str | None:
    """Return the difference between a full scan and all rows of the given number of batches, if any."""
    try:
        *lines, end = (json.loads(line) for line in call(port, "/v1/scan", {}).splitlines())
    except OSError as error:
        return str(error)
    keys = [base64.b64decode(line["key"]) for line in lines]
    wanted = [b"%d/%06d" % (batch, row) for batch in range(batches) for row in range(ROWS)]
    return None if keys == wanted and end.get("end") else f"{len(keys)} rows came back instead of {len(wanted)}"


def check_rows(engine: Engine, batches: int) -> None:
    """Read all rows back."""
    if (complaint := missing_rows(engine.port, batches)) is not None:
        raise CheckError(complaint)


def check_stop_under_load(engine: Engine) -> None:
    """SIGTERM while a client writes: exit code 0, and every acknowledged batch exists afterwards."""
    acknowledged: list[int] = []

    def load() -> None:
        with contextlib.suppress(OSError):
            for batch in range(1000, 2000):
                write_rows(engine, batch)
                acknowledged.append(batch)

    client = threading.Thread(target=load)
    client.start()
    time.sleep(3)
    container = engine.compose("ps", "-q", "writer").strip()
    start = time.monotonic()
    engine.run("stop", "-t", "30", container)
    stop_s = time.monotonic() - start
    client.join()
    code = json.loads(engine.run("inspect", container))[0]["State"]["ExitCode"]
    if code != 0 or not acknowledged:
        raise CheckError(f"the writer was stopped under load: exit code {code}, {len(acknowledged)} batches before")
    engine.compose("up", "-d", "--no-build", "writer")
    wait_until("writer after its stop", HEALTHY_S, lambda: unhealthy(engine))
    for batch in acknowledged:
        lines = call(engine.port, "/v1/scan", {"prefix": _b64(b"%d/" % batch)}).splitlines()
        if len(lines) != ROWS + 1:
            raise CheckError(f"batch {batch} was acknowledged; {len(lines) - 1} of its rows came back")
    _say(f"writer stopped under load with 0 after {stop_s:.1f} s; {len(acknowledged)} acknowledged batches are there")


def targets_down(engine: Engine) -> str | None:
    """Return the scrape targets that are not up, if any."""
    try:
        targets = _prometheus(engine, "targets")["activeTargets"]
    except OSError as error:
        return str(error)
    states = [(target["labels"]["process"], target["health"], target["lastError"]) for target in targets]
    down = [state for state in states if state[1] != "up"]
    return str(down or states) if down or {process for process, *_ in states} != set(DAEMONS) else None


def check_lag(engine: Engine) -> float:
    """Return the reader's lag in seconds, as Prometheus reports it."""
    result = _prometheus(engine, f"query?query=time()-{LAG_METRIC}%7Bprocess%3D%22reader%22%7D")["result"]
    if len(result) != 1 or not 0 <= float(result[0]["value"][1]) < FOLLOWED_S + SCRAPED_S:
        raise CheckError(f"the lag of the reader in Prometheus: {result}")
    return float(result[0]["value"][1])


def _prometheus(engine: Engine, path: str) -> Any:
    return _got(engine.prometheus_port, f"/api/v1/{path}")["data"]


def no_dashboards(engine: Engine) -> str | None:
    """Return the dashboards that anonymous users cannot see; Grafana reads its files after it is healthy."""
    wanted = {json.loads(file.read_text())["uid"] for file in DASHBOARDS.glob("*.json")}
    try:
        found = {each["uid"] for each in _got(engine.grafana_port, "/api/search?type=dash-db")}
        asked = _got(engine.grafana_port, "/api/datasources/proxy/uid/prometheus/api/v1/query?query=vector(1)")
    except OSError as error:
        return str(error)
    return None if found == wanted and asked["status"] == "success" else f"dashboards {sorted(found)}, {asked}"


def _got(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.load(answer)


def check(engine: Engine) -> None:
    """Run all checks on the stack."""
    start = time.monotonic()
    engine.compose("up", "-d", "--no-build", *engine.services)
    wait_until("up", HEALTHY_S, lambda: unhealthy(engine))
    healthy_s = time.monotonic() - start
    _say(f"all {len(engine.services)} services healthy after {healthy_s:.1f} s")
    if healthy_s > HEALTHY_S:
        raise CheckError(f"up took {healthy_s:.0f} s; at most {HEALTHY_S:.0f}")
    write_rows(engine, 0)
    for batch, daemon in enumerate(DAEMONS, start=1):
        engine.compose("kill", "-s", "KILL", daemon)
        engine.compose("up", "-d", "--no-build", daemon)
        back_s = wait_until(f"{daemon} after its kill", HEALTHY_S, lambda: unhealthy(engine))
        check_rows(engine, batch)
        write_rows(engine, batch)
        _say(f"{daemon} killed and healthy again after {back_s:.1f} s; {batch * ROWS} rows read back")
    batches = len(DAEMONS) + 1
    check_rows(engine, batches)
    followed_s = wait_until("reader", FOLLOWED_S, lambda: missing_rows(engine.reader_port, batches))
    _say(f"the reader serves what was written after {followed_s:.1f} s")
    check_stop_under_load(engine)
    up_s = wait_until("Prometheus", SCRAPED_S, lambda: targets_down(engine))
    _say(f"Prometheus has every target up after {up_s:.1f} s; the reader lags by {check_lag(engine):.1f} s")
    if engine.has_grafana:
        shown_s = wait_until("Grafana", SCRAPED_S, lambda: no_dashboards(engine))
        _say(f"Grafana shows the dashboards after {shown_s:.1f} s")


def main() -> int:
    """Build, check, take down; return 0 if all checks pass."""
    engine = Engine()
    try:
        build(engine)
        try:
            check(engine)
        except CheckError:
            for service in engine.services:
                with contextlib.suppress(CheckError):
                    sys.stderr.write(engine.compose("logs", "--tail=15", service))
            raise
        finally:
            start = time.monotonic()
            engine.compose("down", "-v", "-t", "10")
            down_s = time.monotonic() - start
            _say(f"down after {down_s:.1f} s")
        if down_s > DOWN_S:
            raise CheckError(f"down took {down_s:.0f} s; at most {DOWN_S:.0f}")
    except CheckError as error:
        sys.stderr.write(f"compose check failed: {error}\n")
        return 1
    _say("everything held")
    return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
