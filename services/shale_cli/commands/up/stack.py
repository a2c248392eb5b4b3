"""The local stack of daemons: child processes that start, run and stop together."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field

import anyio
import anyio.abc
import anyio.to_thread

from shale.core.lazy_dataclass import dataclass
from shale.service.exit_codes import ExitCode
from shale_cli.framework.probe import ask
from shale_cli.framework.session import CliSession, print_error

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """The specification of one daemon: its name, command line and ports."""

    name: str
    arguments: tuple[str, ...]
    admin_port: int
    port: int | None = None

    @property
    def command(self) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-m", f"shale_{self.name}", *self.arguments]


@dataclass(slots=True)
class ChildDaemon:
    """A running daemon process."""

    planned: DaemonSpec
    process: anyio.abc.Process
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it: 128 plus the signal for a killed process."""
        code = self.process.returncode
        assert code is not None, "it has ended"
        return code if code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless the process has ended."""
        if self.process.returncode is None:
            self.process.send_signal(number)


def plan_stack(where: Sequence[str], *, port: int, admin_port: int) -> list[DaemonSpec]:
    """Return the daemons of a stack with their ports; 0: any free ports."""
    # A terminal shows why a daemon ended, and the others must stop at once, also where the environment says otherwise.
    where = (*where, "--set=shutdown.linger=0")
    data = [port, port + 1] if port else free_ports(2)
    admin = [admin_port + step for step in range(4)] if admin_port else free_ports(4)
    return [
        DaemonSpec("writer", (*where, f"--port={data[0]}", f"--admin-port={admin[0]}"), admin[0], data[0]),
        # A restarted compactor would otherwise take its own recent heartbeats for those of a live coordinator.
        DaemonSpec("compactor", (*where, f"--admin-port={admin[1]}", "--take-over"), admin[1]),
        DaemonSpec("gc", (*where, f"--admin-port={admin[2]}"), admin[2]),
        DaemonSpec("reader", (*where, f"--port={data[1]}", f"--admin-port={admin[3]}"), admin[3], data[1]),
    ]


async def run_stack(plan: Sequence[DaemonSpec], session: CliSession) -> int:
    """Run until a signal, or until a child ends.

    Nothing is started if a port is in use: the readiness probe would mistake the other process for a child, and the new
    writer would fence the writer of that process.

    Returns:
        0 after a signal and a clean stop, otherwise the exit code of the child that ended first, never 0.
    """
    for name, port in _taken_ports(plan):
        print_error(f"port {port} for the {name} is in use; choose other ports with --port and --admin-port")
        return ExitCode.CONFIG
    stack = _Stack(plan, session)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stack.obey_signals)
            await stack.run(tasks)
            tasks.cancel_scope.cancel()
    finally:
        stack.signal_all(signal.SIGKILL)
    return stack.exit_code


class _Stack:
    def __init__(self, plan: Sequence[DaemonSpec], session: CliSession) -> None:
        self._plan = plan
        self._session = session
        self._children: list[ChildDaemon] = []
        self._stop = anyio.Event()
        self.exit_code = 0

    async def run(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start all daemons, wait until one ends or a signal arrives, and stop all."""
        for planned in self._plan:
            await self._start(planned, tasks)
        tasks.start_soon(self._announce)
        await self._stop.wait()
        self.signal_all(signal.SIGTERM)
        with anyio.move_on_after(STOP_TIMEOUT_S) as waiting:
            for child in self._children:
                await child.ended.wait()
        if waiting.cancelled_caught:
            print_error(f"daemons did not stop within {STOP_TIMEOUT_S:g} s: killing them")
            self.signal_all(signal.SIGKILL)
            self.exit_code = self.exit_code or ExitCode.TEMPFAIL

    async def obey_signals(self) -> None:
        """Stop at the first signal, kill at the second.  Children have their own session and get no Ctrl-C."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                if self._stop.is_set():
                    self.signal_all(signal.SIGKILL)
                    self.exit_code = 128 + number
                self._stop.set()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every running child."""
        for child in self._children:
            child.signal(number)

    async def _start(self, planned: DaemonSpec, tasks: anyio.abc.TaskGroup) -> None:
        process = await anyio.open_process(
            planned.command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            start_new_session=True,
        )
        child = ChildDaemon(planned, process)
        self._children.append(child)
        tasks.start_soon(self._watch, child)

    async def _watch(self, child: ChildDaemon) -> None:
        """Wait until a child ends; the first child that ends by itself decides the exit code."""
        await child.process.wait()
        if not self._stop.is_set():
            self.exit_code = child.exit_code or ExitCode.ERROR
            print_error(f"{child.planned.name} ended with exit code {child.exit_code}; stopping the others")
        elif child.exit_code and not self.exit_code:
            self.exit_code = child.exit_code
            print_error(f"{child.planned.name} ended with exit code {child.exit_code}")
        child.ended.set()
        self._stop.set()

    async def _announce(self) -> None:
        """Wait until all daemons are ready, then print their addresses."""
        with anyio.move_on_after(READY_TIMEOUT_S) as waiting:
            for child in self._children:
                while not await _is_ready(child):  # noqa: ASYNC110 - another process cannot set an event
                    await anyio.sleep(POLL_S)
        if waiting.cancelled_caught:
            print_error(f"daemons are not ready after {READY_TIMEOUT_S:g} s")
            self.exit_code = ExitCode.UNAVAILABLE
            self._stop.set()
            return
        items = [
            {
                "process": each.planned.name,
                "pid": each.process.pid,
                "data": f"http://127.0.0.1:{each.planned.port}" if each.planned.port else None,
                "admin": f"http://127.0.0.1:{each.planned.admin_port}",
            }
            for each in self._children
        ]
        self._session.output.listing("processes", items, ("process", "pid", "data", "admin"))
        sys.stdout.flush()
        self._session.output.note(f"{self._session.location.url} is running; Ctrl-C stops it")


async def _is_ready(child: ChildDaemon) -> bool:
    address = f"127.0.0.1:{child.planned.admin_port}"
    status, _ = await anyio.to_thread.run_sync(ask, address, "readyz", 2.0, abandon_on_cancel=True)
    return status == 200


def _taken_ports(plan: Sequence[DaemonSpec]) -> Iterator[tuple[str, int]]:
    for planned in plan:
        for port in (planned.port, planned.admin_port):
            if port is None:
                continue
            with socket.socket() as probe:
                probe.setsockopt(
                    socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
                )  # ports of ended processes in TIME_WAIT are usable
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    yield planned.name, port


def free_ports(count: int) -> list[int]:
    """Return free ports on the loopback address."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
