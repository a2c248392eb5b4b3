"""Run each daemon under a memory limit of the kernel, and overload it: ``make memory-check``.

Not in the default tests.  For 256 and 512 MiB: a writer, a compactor, a worker, a reader, a gc and a standby run with
their default settings, each in a control group of its own.  Clients write more than memory holds, read hot and cold
rows, open scans and gets that they do not read, and send bodies that expand.  Then the compactor stops, so that the WAL
grows until writes wait; a new reader replays it, and the standby takes over after a SIGKILL of the writer.  A daemon
that the kernel kills, that ends, or whose resident memory comes above its limit fails the check; so does a lost row.
"""

import argparse
import asyncio
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.certificates import Authority
from tests.checks.control_group import ControlGroup, control_group, unusable_because
from tests.checks.memory_clients import Server, Writers, hostile, put_large_values, read_for
from tests.integration.daemons.daemon_process import Daemon, running

MIB = 1 << 20
LIMITS_MIB = (256, 512)
FACTOR = 10
WAVES = 5
PHASE_S = 600.0
WORKER = "compactor_options.worker"
OPTIONS: dict[str, tuple[str, ...]] = {
    "writer": ("shale_writer", "--port", "0", "--set", "resp.enabled=true", "--set", "resp.port=0"),
    "standby": ("shale_writer", "--port", "0", "--standby", "--set", "standby.takeover_after=5s"),
    "reader": ("shale_reader", "--port", "0", "--set", "manifest_poll_interval=1s"),
    "compactor": ("shale_compactor", "--set", "compactor_options.poll_interval=1s"),
    "worker": ("shale_compactor.worker", "--set", f"{WORKER}.compactions_poll_interval=1s"),
    "gc": (
        "shale_gc",
        *(
            word
            for task in ("manifest", "wal", "compacted", "compactions")
            for name in ("interval=5s", "min_age=60s")
            for word in ("--set", f"garbage_collector_options.{task}_options.{name}")
        ),
    ),
}


class Run:
    """The daemons of one limit, and what they held."""

    def __init__(self, limit_mib: int, folder: Path, stack: ExitStack, *, with_tls: bool) -> None:
        self._limit_mib = limit_mib
        self._folder = folder
        self._stack = stack
        self._authority = Authority(folder) if with_tls else None
        self._daemons: dict[str, tuple[Daemon, ControlGroup]] = {}
        self.problems: list[str] = []

    async def all_phases(self) -> None:
        """Go through all phases."""
        limit, writers = self._limit_mib * MIB, Writers()
        for name in ("writer", "compactor", "worker", "gc"):
            await self._start(name)
        server = self._server("writer")
        await put_large_values(server)
        begin_s = time.monotonic()
        await writers.write(server, clients=10, until_bytes=3 * limit // 2, seconds=240)
        self._say(f"wrote {writers.rows * 1000 // MIB} MiB in {time.monotonic() - begin_s:.0f} s: {writers.outcomes}")
        await self._start("reader")
        for name in ("writer", "reader"):
            self._say(f"{name} read: {await read_for(self._server(name), writers, seconds=15)}")
        for name in ("writer", "reader"):
            await self._overload(name, writers)
        for name in ("reader", "compactor", "worker"):
            self._stop(name)
        await self._start("standby", "daemon.started")
        await writers.write(server, clients=10, until_bytes=1 << 60, seconds=30)
        self._say(f"without a compactor: {writers.rows * 1000 // MIB} MiB acknowledged: {writers.outcomes}")
        await self._start("reader")
        self._stop("writer", signal.SIGKILL)
        await asyncio.to_thread(self._daemons["standby"][0].wait_for, "daemon.ready", PHASE_S)
        for name in ("compactor", "worker"):
            await self._start(name)
        for name in ("standby", "reader"):
            await self._until_complete(name, writers)
        for name in list(self._daemons):
            self._stop(name)

    async def _overload(self, name: str, writers: Writers) -> None:
        """Let hostile clients come in waves: what those of one wave took must be free for the next one."""
        for wave in range(WAVES):
            # Those of the last wave leave no connection to honest clients where memory is small.
            await self._wave(name, writers, seconds=20 if not wave else 5, addresses=1 if wave < WAVES - 1 else 4)
        self._say(f"{name} after {WAVES} waves of hostile clients: writes: {writers.outcomes}")

    async def _wave(self, name: str, writers: Writers, *, seconds: float, addresses: int) -> None:
        clients = hostile(self._server(name), factor=FACTOR, writes=name == "writer", addresses=addresses)
        await asyncio.to_thread(clients.__enter__)
        honest = [read_for(self._server(name), writers, seconds=seconds)]
        try:
            outcomes, *_ = await asyncio.gather(*honest, self._honest_writes(name, writers, seconds=seconds))
        finally:
            clients.__exit__(None, None, None)
        self._say(f"{name} with hostile clients: {outcomes}")

    async def _honest_writes(self, name: str, writers: Writers, *, seconds: float) -> None:
        if name == "writer":
            await writers.write(self._server(name), clients=2, until_bytes=1 << 60, seconds=seconds)

    async def _until_complete(self, name: str, writers: Writers) -> None:
        """Wait until a server has all acknowledged rows: a reader may serve an older state for some time."""
        end_s = time.monotonic() + 120
        while (missing := await writers.missing(self._server(name))) and time.monotonic() < end_s:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(1)
        self._say(f"{name}: {missing} of {writers.rows} acknowledged rows are missing")
        if missing:
            self.problems.append(f"{name} lacks {missing} acknowledged rows")

    async def _start(self, name: str, event: str = "daemon.ready") -> None:
        module, *options = OPTIONS[name]
        if self._authority is not None:
            cert, key = self._authority.issue("server")
            options += [f"--set=tls.cert_file={cert}", f"--set=tls.key_file={key}"]
        group_name = f"shale-{self._limit_mib}-{name}-{time.monotonic_ns()}"
        group = self._stack.enter_context(control_group(group_name, self._limit_mib * MIB))
        url, log = f"file://{self._folder}/store/orders", self._folder / f"{group_name}.log"
        daemon = self._stack.enter_context(running(module, "--url", url, *options, log=log, prefix=group.prefix))
        await asyncio.to_thread(daemon.wait_for, event, PHASE_S)
        self._daemons[name] = daemon, group

    def _stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Judge a daemon and stop it."""
        daemon, group = self._daemons.pop(name)
        limit = self._limit_mib * MIB
        ended = daemon.process.poll()
        peak = 0 if ended is not None else _peak_bytes(daemon.process.pid)
        code = daemon.stop(number)
        found: list[tuple[bool, str]] = [
            (group.kills > 0, f"the kernel killed it {group.kills} times"),
            (ended is not None, f"it ended with {ended}: {daemon.log.read_text()[-500:]}"),
            (peak > limit, f"its resident memory was {peak // MIB} MiB"),
            (number == signal.SIGTERM and code != 0, f"its exit code is {code}"),
        ]
        self.problems += [f"{name}: {text}" for is_wrong, text in found if is_wrong]
        self._say(f"{name:10} resident at most {peak // MIB} MiB, group at most {group.peak_bytes // MIB} MiB")

    def _server(self, name: str) -> Server:
        daemon = self._daemons[name][0]
        resp_port = daemon.port("resp_port") if name == "writer" else None
        return Server(daemon.port("port"), resp_port, None if self._authority is None else self._authority.ca_file)

    def _say(self, text: str) -> None:
        sys.stdout.write(f"  {self._limit_mib} MiB: {text}\n")
        sys.stdout.flush()


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def main(
    limits_mib: Sequence[int], *, with_tls: bool = False, why_not: Callable[[], str | None] = unusable_because
) -> int:
    """Check all limits; return 1 if a daemon came above its limit, or a row is lost."""
    if (reason := why_not()) is not None:
        sys.stdout.write(f"memory-check: skipped: {reason}\n")
        return 0
    problems: list[str] = []
    for limit_mib in limits_mib:
        folder = Path(tempfile.mkdtemp(prefix="shale-memory-"))
        try:
            with ExitStack() as stack:
                run = Run(limit_mib, folder, stack, with_tls=with_tls)
                asyncio.run(run.all_phases())
                problems += [f"{limit_mib} MiB: {problem}" for problem in run.problems]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    for problem in problems:
        sys.stdout.write(f"WRONG {problem}\n")
    return int(bool(problems))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.checks.memory", description=main.__doc__)
    parser.add_argument("limits", nargs="*", type=int, default=LIMITS_MIB, help="in MiB")
    parser.add_argument("--tls", action="store_true", help="all ports have TLS")
    arguments = parser.parse_args()
    sys.exit(main(arguments.limits, with_tls=arguments.tls))
