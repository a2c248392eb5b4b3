"""Runs targets in child processes, so that a crash, a hang or too much memory is a finding and not the end."""

import contextlib
import faulthandler
import json
import mmap
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.hang import HangWatch, waits_of
from tests.fuzz.target import Target
from tests.fuzz.worker import BOX_BYTES, Box, Work, outcome, record

HANG_S = 10.0
_POLL_S = 0.05
_TRACEBACK = signal.SIGUSR1
_TRACEBACK_MAX_S = 10.0
_TRACEBACK_STEP_S = 0.25
_RESTARTS_MAX = 200
_DONE = 64
"""Status of a process that has worked to its end: an input may end it with 0."""
_ENDED = "it ends the process with status 0"


@dataclass(frozen=True)
class Finding:
    """An input that does what no input may do."""

    target: str
    what: str
    data: bytes
    traceback: str = ""


@dataclass
class Outcome:
    """What the runs of one target did."""

    target: Target
    executions: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    hit: dict[str, set[int]] = field(default_factory=dict)


class _Child:
    """One process that runs one target for a time."""

    def __init__(self, target: Target, folder: Path, *, seed: int, seconds: float, executions: int | None) -> None:
        self.target = target
        self.started = time.monotonic()
        self._folder = folder
        self._seed = seed
        self._until = self.started + seconds
        self._executions = executions
        self._restarts = self._done = 0
        self._memory = mmap.mmap(-1, BOX_BYTES)
        self._box = Box(self._memory)
        folder.mkdir(parents=True, exist_ok=True)
        self._start()

    def _start(self) -> None:
        self._box.put(0, b"")
        (self._folder / "traceback").write_bytes(b"")
        self._watch = HangWatch(HANG_S, time.monotonic())
        self._hanging: bytes | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        # A child of a process with threads must call no code of theirs; this one starts its own event loops.
        self._pid = os.fork()
        if self._pid == 0:
            self._run()

    def _run(self) -> None:
        """Work in the child; never returns."""
        status = 1
        try:
            with (self._folder / "log").open("ab", 0) as log:  # what parsers log would fill the terminal
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            self._log_tracebacks()
            left = None if self._executions is None else self._executions - self._done
            work = Work(self.target, self._seed + self._restarts, self._folder, self._box, skip=self._done)
            work.run(until_s=self._until, executions_max=left)
            status = _DONE
        except SystemExit:
            status = _DONE
        except BaseException:  # noqa: BLE001 - the end of the process
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _log_tracebacks(self) -> None:
        """Let a crash, and the supervisor at a hang, leave a traceback; also where native code does not return."""
        file = (self._folder / "traceback").open("wb", 0)
        faulthandler.enable(file)
        faulthandler.register(_TRACEBACK, file)

    def step(self) -> bool:
        """Return whether the work is over; start a new process after a crash or a hang."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            number, data = self._box.take()
            if self._watch.is_hang(number, waits_of(self._pid), time.monotonic()):
                self._hanging = data
                _kill_with_traceback(self._pid, self._folder / "traceback")
            return False
        number, data = self._box.take()
        self._done += number
        found = (self._folder / "traceback").read_text(errors="replace")
        if self._hanging is not None:  # also if it ended at last, before it was killed
            record(self._folder, f"no end within {HANG_S:.0f} s", self._hanging, found)
        elif os.WIFSIGNALED(status):
            record(self._folder, signal.Signals(os.WTERMSIG(status)).name, data, found)
        elif os.waitstatus_to_exitcode(status) == 0:
            record(self._folder, _ENDED, data)
        elif os.waitstatus_to_exitcode(status) != _DONE:
            record(self._folder, f"the target cannot be run, see {self._folder / 'log'}", data)
            return True
        self._restarts += 1
        is_enough = not number or (self._executions is not None and self._done >= self._executions)
        if is_enough or time.monotonic() >= self._until or self._restarts > _RESTARTS_MAX:
            return True
        self._start()
        return False

    def outcome(self) -> Outcome:
        """Return what all processes of this target did."""
        found = Outcome(self.target, seconds=time.monotonic() - self.started)
        for path in self._folder.glob("progress-*.json"):
            with contextlib.suppress(json.JSONDecodeError):  # written half
                progress = json.loads(path.read_text())
                found.executions += progress["executions"]
                for module, lines in progress["hit"].items():
                    found.hit.setdefault(module, set()).update(lines)
        seen: set[str] = set()
        for path in sorted((self._folder / "findings").glob("*.json")):
            finding = json.loads(path.read_text())
            if finding["what"] not in seen:
                seen.add(finding["what"])
                found.findings.append(Finding(self.target.name, data=path.with_suffix(".bin").read_bytes(), **finding))
        return found


def _kill_with_traceback(pid: int, file: Path) -> None:
    """Kill a process after its traceback is in the file; nothing tells its end but that it grows no more."""
    os.kill(pid, _TRACEBACK)
    until, size = time.monotonic() + _TRACEBACK_MAX_S, 0
    while time.monotonic() < until:
        time.sleep(_TRACEBACK_STEP_S)
        size, before = file.stat().st_size, size
        if size and size == before:
            break
    os.kill(pid, signal.SIGKILL)


def run_targets(
    targets: Sequence[Target], folder: Path, *, seconds: float, jobs: int, seed: int, executions: int | None = None
) -> list[Outcome]:
    """Run all targets, each for its share of the time on ``jobs`` processes."""
    shutil.rmtree(folder, ignore_errors=True)
    weights = sum(target.weight for target in targets)
    waiting = sorted(targets, key=lambda target: -target.weight)
    running: list[_Child] = []
    outcomes: list[Outcome] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            target = waiting.pop(0)
            share = seconds * jobs * target.weight / weights
            running.append(_Child(target, folder / target.name, seed=seed * 1000, seconds=share, executions=executions))
        for child in list(running):
            if child.step():
                running.remove(child)
                outcomes.append(child.outcome())
        time.sleep(_POLL_S if executions is None else _POLL_S / 10)
    return outcomes


def replay(target: Target, data: bytes) -> str | None:
    """Run one input in a child; return what is wrong, or ``None``."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, f"done: {outcome(target, data) or ''}".encode())
        finally:
            os._exit(1)
    os.close(writer)
    watch = HangWatch(HANG_S, time.monotonic())
    try:
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if watch.is_hang(1, waits_of(pid), time.monotonic()):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"no end within {HANG_S:.0f} s"
            time.sleep(0.002)
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        _, is_done, what = os.read(reader, 1 << 16).decode().partition("done: ")
        return (what or None) if is_done else _ENDED
    finally:
        os.close(reader)


def minimized(target: Target, finding: Finding, *, seconds: float = 20.0) -> bytes:
    """Return a shorter input with the same finding: pieces are left out as long as it stays."""
    until = time.monotonic() + seconds
    data, piece = finding.data, max(len(finding.data) // 2, 1)
    while piece and time.monotonic() < until:
        at = 0
        while at < len(data) and time.monotonic() < until:
            shorter = data[:at] + data[at + piece :]
            if replay(target, shorter) == finding.what:
                data = shorter
            else:
                at += piece
        piece //= 2
    return data
