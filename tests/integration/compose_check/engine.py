"""The container engine and its compose."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.paths import REPOSITORY
from tests.ports import free_port

PROJECT = "shale-check"
DAEMONS = ("writer", "compactor", "worker", "gc", "reader")
TOKEN = "token-of-the-check"
HEALTHY_S = 180.0
"""A limit that a busy machine needs, too."""


class CheckError(Exception):
    """A difference between the stack and its description."""


def say(text: str) -> None:
    """Write a line of the report."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def wait_until(what: str, limit_s: float, look: Callable[[], str | None]) -> float:
    """Poll until there is no complaint; return the seconds it took."""
    start = time.monotonic()
    while (complaint := look()) is not None:
        if time.monotonic() - start > limit_s:
            raise CheckError(f"{what}: after {limit_s:.0f} s {complaint}")
        time.sleep(0.5)
    return time.monotonic() - start


class Engine:
    """Runs commands of the engine and of compose, with the environment of one stack."""

    def __init__(self) -> None:
        # Debian's client builds with BuildKit without a plug-in; another one may come first on PATH.
        self._docker = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        self._compose = shlex.split(os.environ.get("COMPOSE", "")) or self._found_compose()
        self.port, self.reader_port = free_port(), free_port()
        self.prometheus_port, self.alertmanager_port, self.grafana_port = free_port(), free_port(), free_port()
        self.has_registry = "BINARIES" not in os.environ
        self.has_grafana = self.has_registry or "GRAFANA_IMAGE" in os.environ
        monitoring = ("prometheus", "alertmanager", "alert-receiver", *(["grafana"] if self.has_grafana else []))
        self.services = ("store", *DAEMONS, *monitoring)
        self.env = {
            **os.environ,
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_PROJECT_NAME": PROJECT,
            "SHALE_TOKEN": TOKEN,
            "SHALE_PORT": str(self.port),
            "SHALE_READER_PORT": str(self.reader_port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "ALERTMANAGER_PORT": str(self.alertmanager_port),
            "GRAFANA_PORT": str(self.grafana_port),
        }

    def _found_compose(self) -> list[str]:
        asked = subprocess.run([self._docker, "compose", "version"], capture_output=True, check=False)
        return [self._docker, "compose"] if asked.returncode == 0 else ["docker-compose"]

    def run(self, *args: str) -> str:
        """Run a command of the engine and return what it prints."""
        return self._call([self._docker, *args], {})

    def compose(self, *args: str, **env: str) -> str:
        """Run a command of compose, with further variables."""
        return self._call([*self._compose, *args], env)

    def logs(self, container: str) -> str:
        """Return what a container has printed; logs of daemons are on the error stream."""
        done = self._done([self._docker, "logs", container], {})
        return done.stdout + done.stderr

    def _call(self, command: list[str], env: dict[str, str]) -> str:
        return self._done(command, env).stdout

    def _done(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, cwd=REPOSITORY, env=self.env | env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CheckError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def up(self, *services: str) -> float:
        """Start services, or all; return the seconds until everything is healthy."""
        start = time.monotonic()
        self.start(*services)
        wait_until(" ".join(services) or "up", HEALTHY_S, self.complaint)
        return time.monotonic() - start

    def start(self, *services: str) -> None:
        """Start services, or all, and do not wait for their health."""
        self.compose("up", "-d", "--no-build", *(services or self.services))

    def down(self, *options: str) -> float:
        """Remove all containers; return the seconds it took."""
        start = time.monotonic()
        self.compose("--profile", "demo", "down", "-t", "10", *options)
        return time.monotonic() - start

    def inspect(self, service: str) -> list[dict[str, Any]]:
        """Return what the engine knows of the containers of a service, also of those that have ended."""
        containers = self.compose("ps", "--all", "-q", service).split()
        return json.loads(self.run("inspect", *containers)) if containers else []

    def complaint(self) -> str | None:
        """Return the services that are not healthy, if any."""
        states = {service: self._health(service) for service in self.services}
        bad = {service: state for service, state in states.items() if state != "healthy"}
        return str(bad) if bad else None

    def _health(self, service: str) -> str:
        states = [each["State"] for each in self.inspect(service)]
        return "/".join(sorted({str(state.get("Health", state)["Status"]) for state in states})) or "absent"
