"""The daemons of a run: their settings, ports and versions."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.paths import PYTHONPATH
from tests.soak.plan.faults import OTHERS, READERS, WRITERS
from tests.soak.stack.network import Network
from tests.soak.stack.processes import CURRENT, Command
from tests.soak.stack.store import URL

TOKEN = "soak-token"
MIN_AGE_S = 30.0
LEASE_S = 15.0
MERGE_OPERATOR = "concatenate"
"""The operator of all processes: merge operands append to lists (``tests.soak.history.values.joined``)."""
_BLOCKS = {"store.request_timeout": "5s", "store.connect_timeout": "2s"}
_CACHE = {"block_cache_bytes": "32MiB"}
_FAST_WORKER = {
    "compactor_options.worker.heartbeat_interval": "1s",
    "compactor_options.worker.compactions_poll_interval": "500ms",
    "compactor_options.worker.max_sst_size": "512KiB",
    "compactor_options.worker.merge_operator": MERGE_OPERATOR,
}
SETTINGS: dict[str, dict[str, str]] = {
    "shale_writer": {
        **_BLOCKS,
        **_CACHE,
        "merge_operator": MERGE_OPERATOR,
        "flush_interval": "50ms",
        "l0_sst_size_bytes": "256KiB",
        "manifest_poll_interval": "500ms",
        "standby.poll_interval": "500ms",
        "standby.takeover_after": "3s",
        "standby.unsigned_takeover_after": "5s",
        "http.request_timeout": "10s",
        "resp.enabled": "true",
        "resp.durability": "durable",
        "resp.request_timeout": "10s",
        "shutdown.deadline": "25s",
    },
    "shale_reader": {
        **_BLOCKS,
        **_CACHE,
        "merge_operator": MERGE_OPERATOR,
        "manifest_poll_interval": "300ms",
        "checkpoint_lifetime": f"{LEASE_S:g}s",
        "http.request_timeout": "10s",
        "resp.enabled": "true",
    },
    "shale_compactor": {
        **_BLOCKS,
        **_FAST_WORKER,
        "compactor_options.poll_interval": "500ms",
        "compactor_options.commit_compacted_interval": "200ms",
        "compactor_options.worker_heartbeat_timeout": "5s",
        "compactor_options.checkpoint_lifetime": f"{LEASE_S:g}s",
    },
    "shale_gc": {
        **_BLOCKS,
        **{
            f"garbage_collector_options.{task}_options.{name}": value
            for task in ("manifest", "wal", "compacted", "compactions")
            for name, value in (("interval", "5s"), ("min_age", f"{MIN_AGE_S:g}s"))
        },
    },
}
SETTINGS["shale_compactor.worker"] = {**_BLOCKS, **_FAST_WORKER}


class Daemons:
    """Makes the commands of daemons; every instance has ports of its own, so an address names an instance."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        environment: dict[str, str],
        *,
        versions: dict[str, str],
        prefixes: Mapping[str, Sequence[str]],
    ) -> None:
        """Prepare all daemons.

        Args:
            folder: for clocks, caches and the file of addresses.
            network: where they run.
            environment: how they reach the store.
            versions: the ``PYTHONPATH`` of each version.
            prefixes: for some nodes, a command that starts another one in the same process.
        """
        self._prefixes = prefixes
        self._network = network
        self._environment = environment
        self._versions = {CURRENT: PYTHONPATH, **versions}
        self._clocks = folder / "clocks"
        self._clocks.mkdir()
        self._caches = folder / "caches"
        self._addresses: dict[str, dict[str, Any]] = {}
        self._version_of: dict[str, str] = {}
        self.standby_of: dict[str, bool] = dict.fromkeys(WRITERS, True)
        self.address_book = folder / "addresses.json"
        self.memory_limit: str | None = None

    def use(self, node: str, version: str) -> None:
        """Start further instances of a node with this version."""
        self._version_of[node] = version

    def version(self, node: str) -> str:
        """Return the version of further instances of a node."""
        return self._version_of.get(node, CURRENT)

    def set_clock(self, node: str, offset_s: float) -> None:
        """Let the wall clock of a node differ from the right time."""
        self._clock(node).write_text(f"{offset_s}")

    def cache(self, node: str) -> Path:
        """Return the folder of the disk cache of a reader."""
        return self._caches / node

    def _clock(self, node: str) -> Path:
        return self._clocks / node

    def command(self, node: str, number: int) -> Command:
        """Return the command of the next instance of a node."""
        module = module_of(node)
        host = self._network.address(node)
        instance = f"{node}.{number}"
        words = [sys.executable, "-W", "error", "-m", "tests.soak.stack.clock", str(self._clock(node)), module]
        words += ["--url", URL, "--admin-port", str(self._network.port())]
        settings = dict(SETTINGS[module])
        if node in (*WRITERS, *READERS):
            http, resp = self._network.port(), self._network.port()
            words += ["--port", str(http)]
            settings |= {"http.host": host, "resp.host": host, "resp.port": str(resp)}
            self._publish(node, instance, f"{host}:{http}", f"{host}:{resp}")
        if node in WRITERS:
            words += ["--standby"] if self.standby_of[node] else []
            settings["writer_endpoint"] = f"http://{host}:{http}"
        if node in READERS:
            settings |= {"disk_cache.directory": str(self.cache(node)), "disk_cache.max_bytes": "8MiB"}
        if node == "compactor":
            words += ["--take-over", "--no-embedded-worker"]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        path = self._versions[self.version(node)]
        tests = PYTHONPATH.split(":", 1)[0]  # the launcher is always the current one
        environment = {
            **self._environment,
            "PYTHONPATH": path if self.version(node) == CURRENT else f"{path}:{tests}",
            "SHALE_HTTP__BEARER_TOKEN": TOKEN,
            "SHALE_ADMIN__BEARER_TOKEN": TOKEN,
            "SHALE_LOG__FORMAT": "json",
        }
        if self.memory_limit is not None and self.version(node) == CURRENT:
            environment["SHALE_MEMORY__LIMIT"] = self.memory_limit
        if node not in (*WRITERS, *READERS):
            del environment["SHALE_HTTP__BEARER_TOKEN"]
        words = [*self._prefixes.get(node, ()), *self._network.inside(node, words)]
        return Command(instance, words, environment, self.version(node))

    def _publish(self, node: str, instance: str, http: str, resp: str) -> None:
        """Tell clients where an instance listens."""
        self._addresses[node] = {"node": node, "instance": instance, "http": http, "resp": resp}
        book = {
            "writers": [each for name, each in self._addresses.items() if name in WRITERS],
            "readers": [each for name, each in self._addresses.items() if name in READERS],
        }
        fresh = self.address_book.with_suffix(".new")
        fresh.write_text(json.dumps(book))
        fresh.replace(self.address_book)


def module_of(node: str) -> str:
    """Return the module of a node's daemon."""
    if node in WRITERS:
        return "shale_writer"
    if node in READERS:
        return "shale_reader"
    assert node in OTHERS, node
    return {"compactor": "shale_compactor", "worker": "shale_compactor.worker", "gc": "shale_gc"}[node]
