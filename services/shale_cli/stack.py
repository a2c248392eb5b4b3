"""The local stack: child processes that start, are watched, and stop together."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.abc
import anyio.to_thread

from shale.service.exit_codes import ExitCode
from shale_cli.probe import ask
from shale_cli.session import Session, complain

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Planned:
    """One daemon: its module, its command line, and where it will answer."""

    name: str
    arguments: tuple[str, ...]
    admin_port: int
    port: int | None = None

    @property
    def command(self) -> list[str]:
        """The whole command."""
        return [sys.executable, "-m", f"shale_{self.name}", *self.arguments]


@dataclass(slots=True)
class Child:
    """A daemon that was started."""

    planned: Planned
    process: anyio.abc.Process
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def exit_code(self) -> int:
        """As a shell would tell it: 128 and the signal for a process that was killed."""
        code = self.process.returncode
        assert code is not None, "it has ended"
        return code if code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process.returncode is None:
            self.process.send_signal(number)


def plan_stack(where: Sequence[str], *, port: int, admin_port: int) -> list[Planned]:
    """Give every daemon its ports; 0 asks for free ones."""
    data = [port, port + 1] if port else _free_ports(2)
    admin = [admin_port + step for step in range(4)] if admin_port else _free_ports(4)
    return [
        Planned("writer", (*where, f"--port={data[0]}", f"--admin-port={admin[0]}"), admin[0], data[0]),
        # Stopped and started again within seconds, the compactor would take its own traces for a live coordinator.
        Planned("compactor", (*where, f"--admin-port={admin[1]}", "--take-over"), admin[1]),
        Planned("gc", (*where, f"--admin-port={admin[2]}"), admin[2]),
        Planned("reader", (*where, f"--port={data[1]}", f"--admin-port={admin[3]}"), admin[3], data[1]),
    ]


async def run_stack(plan: Sequence[Planned], session: Session) -> int:
    """Run until a signal, or until a child ends.

    Returns:
        0 after a signal and a clean stop; else the code of the child that ended first, never 0.  Nothing is started
        on ports that are taken: whoever listens there would pass for one of ours, and its writer would be fenced.
    """
    for name, port in _taken_ports(plan):
        complain(f"port {port} for the {name} is taken; choose others with --port and --admin-port")
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
    def __init__(self, plan: Sequence[Planned], session: Session) -> None:
        self._plan = plan
        self._session = session
        self._children: list[Child] = []
        self._stop = anyio.Event()
        self.exit_code = 0

    async def run(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start all, wait for the end of one or for a signal, stop all."""
        for planned in self._plan:
            await self._start(planned, tasks)
        tasks.start_soon(self._announce)
        await self._stop.wait()
        self.signal_all(signal.SIGTERM)
        with anyio.move_on_after(STOP_TIMEOUT_S) as waiting:
            for child in self._children:
                await child.ended.wait()
        if waiting.cancelled_caught:
            complain(f"not stopped after {STOP_TIMEOUT_S:g} s: killed")
            self.signal_all(signal.SIGKILL)
            self.exit_code = self.exit_code or ExitCode.TEMPFAIL

    async def obey_signals(self) -> None:
        """The first signal stops the stack, a second one kills it.  Children have their own session: only we hear."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                if self._stop.is_set():
                    self.signal_all(signal.SIGKILL)
                    self.exit_code = 128 + number
                self._stop.set()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every child that is alive."""
        for child in self._children:
            child.signal(number)

    async def _start(self, planned: Planned, tasks: anyio.abc.TaskGroup) -> None:
        process = await anyio.open_process(
            planned.command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
        )
        child = Child(planned, process)
        self._children.append(child)
        tasks.start_soon(self._watch, child)

    async def _watch(self, child: Child) -> None:
        """Wait for the end of a child; the first one that ends unasked decides the exit code."""
        await child.process.wait()
        if not self._stop.is_set():
            self.exit_code = child.exit_code or ExitCode.ERROR
            complain(f"{child.planned.name} ended with exit code {child.exit_code}; stopping the others")
        elif child.exit_code and not self.exit_code:
            self.exit_code = child.exit_code
            complain(f"{child.planned.name} ended with exit code {child.exit_code}")
        child.ended.set()
        self._stop.set()

    async def _announce(self) -> None:
        """Wait until all are ready and say where they are."""
        with anyio.move_on_after(READY_TIMEOUT_S) as waiting:
            for child in self._children:
                while not await _is_ready(child):  # noqa: ASYNC110 - another process cannot set our events
                    await anyio.sleep(POLL_S)
        if waiting.cancelled_caught:
            complain(f"not ready after {READY_TIMEOUT_S:g} s")
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
        self._session.output.note(f"{self._session.location.url} is up; Ctrl-C stops it")


async def _is_ready(child: Child) -> bool:
    address = f"127.0.0.1:{child.planned.admin_port}"
    status, _ = await anyio.to_thread.run_sync(ask, address, "readyz", 2.0, abandon_on_cancel=True)
    return status == 200


def _taken_ports(plan: Sequence[Planned]) -> Iterator[tuple[str, int]]:
    for planned in plan:
        for port in (planned.port, planned.admin_port):
            if port is None:
                continue
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ports of ended processes are free
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    yield planned.name, port


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
