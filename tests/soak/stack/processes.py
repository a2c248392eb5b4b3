"""Supervised processes: started, restarted after their end, frozen and killed, with every exit noted."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.stack.leftovers import Leftovers

CURRENT, PREVIOUS = "current", "previous"
"""The versions of the code of a process."""
RESTART_S = 1.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    """How one instance of a process starts."""

    instance: str
    words: Sequence[str]
    environment: Mapping[str, str]
    version: str = CURRENT


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of an instance; ``code`` is negative for a signal."""

    node: str
    instance: str
    version: str
    code: int
    at: float
    injected: str
    """The fault that ended it; empty if it ended by itself."""
    log: Path

    def has_logged(self, event: str) -> bool:
        """Say whether the log has an event."""
        return self.log.exists() and event in self.log.read_text(errors="replace")


@dataclass
class _Running:
    process: "subprocess.Popen[bytes]"
    command: Command
    log: Path
    injected: str = ""
    is_frozen: bool = False


@dataclass
class Node:
    """A place at which one instance at a time runs."""

    name: str
    make: Callable[[int], Command]
    is_restarted: bool = True
    count: int = 0
    running: _Running | None = None
    starts_at: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)


class Supervisor:
    """Restarts what ends, as an orchestrator would."""

    def __init__(self, logs: Path, leftovers: Leftovers) -> None:
        self._logs = logs
        self._leftovers = leftovers
        self._is_closing = False
        self.nodes: dict[str, Node] = {}
        self.exits: list[Exit] = []

    def add(self, name: str, make: Callable[[int], Command], *, is_restarted: bool = True) -> None:
        """Add a node and start it; ``make`` gets the number of the instance."""
        self.nodes[name] = Node(name, make, is_restarted)
        self.start(name)

    def start(self, name: str) -> None:
        """Start an instance, unless one runs."""
        node = self.nodes[name]
        with node.lock:
            if node.running is not None:
                return
            command = node.make(node.count)
            node.count += 1
            log = self._logs / f"{command.instance}.log"
            with log.open("ab") as out:
                process = subprocess.Popen(
                    command.words,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={**os.environ, **command.environment},
                    cwd=self._logs,
                    start_new_session=True,
                )
            self._leftovers.started(process.pid)
            node.running = _Running(process, command, log)

    def signal(self, name: str, number: signal.Signals, why: str = "") -> bool:
        """Send a signal; return whether an instance was there.  ``why`` names the fault that ends it."""
        node = self.nodes[name]
        with node.lock:
            running = node.running
            if running is None or running.process.poll() is not None:
                return False
            running.injected = why or running.injected
            running.is_frozen = (running.is_frozen or number == signal.SIGSTOP) and number != signal.SIGCONT
            running.process.send_signal(number)
            return True

    def instance(self, name: str) -> Command | None:
        """Return the command of the running instance."""
        running = self.nodes[name].running
        return None if running is None else running.command

    def log_of(self, name: str) -> Path | None:
        """Return the log of the running instance."""
        running = self.nodes[name].running
        return None if running is None else running.log

    def pids(self) -> dict[str, tuple[str, int]]:
        """Return instance and process id of each running node."""
        found = {}
        for name, node in self.nodes.items():
            if (running := node.running) is not None and running.process.poll() is None:
                found[name] = (running.command.instance, running.process.pid)
        return found

    def tend(self) -> None:
        """Note what has ended, and start it again after a pause."""
        for node in self.nodes.values():
            with node.lock:
                running = node.running
                if running is not None and running.process.poll() is not None:
                    self._note(node, running)
                is_wanted = node.running is None and node.is_restarted and not self._is_closing
                if is_wanted and time.monotonic() >= node.starts_at:
                    self.start(node.name)

    def _note(self, node: Node, running: _Running) -> None:
        code = running.process.returncode
        command = running.command
        end = Exit(node.name, command.instance, command.version, code, time.monotonic(), running.injected, running.log)
        self.exits.append(end)
        self._leftovers.ended(running.process.pid)
        node.running = None
        node.starts_at = time.monotonic() + RESTART_S

    def stop(self, names: Sequence[str]) -> list[str]:
        """Stop nodes with SIGTERM; return those that had to be killed."""
        self.pause(names)
        for name in names:
            self.signal(name, signal.SIGCONT)
            self.signal(name, signal.SIGTERM, "stop")
        deadline = time.monotonic() + STOP_S
        killed = []
        for name in names:
            running = self.nodes[name].running
            if running is None:
                continue
            try:
                running.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                killed.append(running.command.instance)
                running.process.kill()
                running.process.wait()
            with self.nodes[name].lock:
                self._note(self.nodes[name], running)
        return killed

    def pause(self, names: Sequence[str]) -> None:
        """Restart these nodes no more."""
        for name in names:
            self.nodes[name].is_restarted = False

    def close(self) -> None:
        """Kill everything that still runs."""
        self._is_closing = True
        for node in self.nodes.values():
            if (running := node.running) is not None:
                running.process.kill()
                running.process.wait()
                self._leftovers.ended(running.process.pid)
                node.running = None
