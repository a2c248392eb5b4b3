"""Everything that a run starts: network, store, daemons, clients; and its end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.paths import PYTHONPATH
from tests.soak.judge.memory import MemorySamples
from tests.soak.plan.faults import CLIENTS, DAEMONS, READERS, STORE
from tests.soak.plan.options import Options
from tests.soak.run.events import Events
from tests.soak.run.injector import Injector
from tests.soak.stack.daemons import MERGE_OPERATOR, TOKEN, Daemons
from tests.soak.stack.leftovers import Leftovers, end_leftovers
from tests.soak.stack.memory_groups import MemoryGroups
from tests.soak.stack.network import Loopback, Namespaces, Network, can_make_namespaces
from tests.soak.stack.previous import check_out, default_previous
from tests.soak.stack.processes import PREVIOUS, Command, Supervisor
from tests.soak.stack.store import URL, Store, can_mount, mount_tmpfs

NODES = (STORE, CLIENTS, "wheel", *DAEMONS)
STORE_BYTES, STORE_BYTES_PER_HOUR, CACHE_BYTES = 256 << 20, 512 << 20, 24 << 20
WRITER_S = 90.0
PACE_S = 0.03
ROLES = ("http", "resp", "readers", "embedded", "feed", "wheel-reader")
SMALL_ROLES = ("http", "resp", "readers", "feed")


class Site:
    """All processes of a run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder
        state = options.folder.parent / "soak-state.json"
        end_leftovers(state)
        self.folder.mkdir(parents=True)
        self.logs = self.folder / "logs"
        self.history = self.folder / "history"
        self.logs.mkdir()
        self.history.mkdir()
        self._leftovers = Leftovers(state)
        self.abilities = set() if options.is_small else machine_abilities(self.folder)
        self.network: Network = Namespaces(NODES) if "namespaces" in self.abilities else Loopback()
        self.previous = self._check_out_previous()
        self.supervisor = Supervisor(self.logs, self._leftovers)
        self.events = Events(self.folder / "events.jsonl")
        self.memory = MemorySamples(options.memory_limit_bytes)
        self.store = Store(self.folder, self.network, self.supervisor, is_small=options.is_small, seed=options.seed)
        versions = {} if self.previous is None else {PREVIOUS: self.previous[1]}
        self.daemon_nodes = tuple(name for name in DAEMONS if not options.is_small or name != READERS[1])
        self.groups: MemoryGroups | None = None
        if options.has_memory_groups:
            self.groups = MemoryGroups(self.daemon_nodes, options.memory_limit_bytes, self._leftovers)
        prefixes = {} if self.groups is None else self.groups.prefixes
        self.daemons = Daemons(self.folder, self.network, self.store.environment, versions=versions, prefixes=prefixes)
        self.daemons.memory_limit = _memory_limit(options)
        self._config = self.folder / "clients.json"
        self.injector = Injector(
            self.supervisor, self.daemons, self.store, self.network, self.events, self._wheel_command
        )
        self.client_roles = SMALL_ROLES if options.is_small else ROLES

    def _check_out_previous(self) -> tuple[str, str] | None:
        """Return the earlier commit and its ``PYTHONPATH``."""
        if self.options.is_small:
            return None
        commit = self.options.previous or default_previous()
        if commit is None:
            return None
        try:
            path = check_out(commit, self.folder.parent / f"soak-previous-{commit}")
        except RuntimeError:
            if self.options.previous:
                raise
            return None
        self.abilities.add("previous")
        return commit, path

    def start(self) -> None:
        """Start everything, and wait until a writer answers."""
        has_tmpfs = "tmpfs" in self.abilities
        size = STORE_BYTES + int(STORE_BYTES_PER_HOUR * self.options.seconds / 3600)
        self.store.start(self._leftovers, size if has_tmpfs else None)
        if has_tmpfs:
            for node in READERS:
                mount_tmpfs(self.daemons.cache(node), CACHE_BYTES, self._leftovers)
        writers = [name for name in self.daemon_nodes if name.startswith("writer")]
        for name in writers:
            self._add_daemon(name)
        self._wait_for_writer(writers)
        for name in self.daemon_nodes:
            if name not in writers:
                self._add_daemon(name)
        self._write_config()
        for role in self.client_roles:
            self.supervisor.add(f"client-{role}", self._client(role))

    def _add_daemon(self, name: str) -> None:
        self.supervisor.add(name, lambda number: self.daemons.command(name, number))

    def _wait_for_writer(self, writers: Sequence[str]) -> None:
        """Wait until one writer is active; the database is made by it."""
        deadline = time.monotonic() + WRITER_S
        while True:
            self.supervisor.tend()
            logs = [log.read_text(errors="replace") for name in writers if (log := self.supervisor.log_of(name))]
            if any('"event": "writer.promoted"' in text or '"event":"writer.promoted"' in text for text in logs):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"no writer became active within {WRITER_S:.0f} s: {self.logs}")
            time.sleep(0.1)

    def _write_config(self) -> None:
        self._config.write_text(
            json.dumps(
                {
                    "history": str(self.history),
                    "book": str(self.daemons.address_book),
                    "seed": self.options.seed,
                    "pace_s": PACE_S,
                    "url": URL,
                    "token": TOKEN,
                }
            )
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {**self.store.environment, "PYTHONPATH": PYTHONPATH, "SHALE_MERGE_OPERATOR": MERGE_OPERATOR}

    def _client(self, role: str) -> "Client":
        return Client(self, role)

    def client_command(self, role: str, number: int) -> Command:
        """Return the command of a client process."""
        name = f"client-{role}.{number}"
        words = [sys.executable, "-m", "tests.soak.clients", role, "--config", str(self._config), "--name", name]
        return Command(name, self.network.inside(CLIENTS, words), self._environment)

    def _wheel_command(self, name: str, seconds: float, compacts: bool) -> Command:
        words = [sys.executable, "-m", "tests.soak.clients.wheel", "--config", str(self._config), "--name", name]
        words += ["--seconds", str(seconds), *(["--compact"] if compacts else [])]
        return Command(f"{name}.0", self.network.inside("wheel", words), self._environment)

    def run_command(self, words: Sequence[str], limit_s: float) -> "subprocess.CompletedProcess[str]":
        """Run a command where the clients are."""
        inside = self.network.inside(CLIENTS, words)
        environment = {**os.environ, **self._environment}
        try:
            return subprocess.run(
                inside, capture_output=True, text=True, check=False, env=environment, timeout=limit_s, cwd=self.logs
            )
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(inside, -1, "", f"no end after {limit_s:.0f} s: {error}")

    def read_everything(self) -> "subprocess.CompletedProcess[str]":
        """Read the database after the load, by the writer and by readers."""
        words = [sys.executable, "-m", "tests.soak.clients.final", "--config", str(self._config)]
        return self.run_command([*words, *([] if self.options.is_small else ["--with-wheel"])], 400)

    def close(self) -> None:
        """End everything that still runs, and remove network and mounts."""
        self.supervisor.close()
        if self.groups is not None:
            self.groups.close()
        self._leftovers.clear()
        self.network.close()


class Client:
    """Makes the commands of one client node."""

    def __init__(self, site: Site, role: str) -> None:
        self._site = site
        self._role = role

    def __call__(self, number: int) -> Command:
        """Return the command of an instance."""
        return self._site.client_command(self._role, number)


def machine_abilities(folder: Path) -> set[str]:
    """Return what this machine and this user allow."""
    found = set()
    if can_make_namespaces():
        found.add("namespaces")
    if can_mount(folder):
        found.add("tmpfs")
    if find_spec("slatedb") is not None:
        found.add("wheel")
    return found


def _memory_limit(options: Options) -> str | None:
    """Return the limit as a setting, if the daemons have one."""
    from shale_writer.settings import WriterSettings

    return f"{options.memory_limit_bytes >> 20}MiB" if "memory" in WriterSettings.model_fields else None
