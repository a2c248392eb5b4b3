"""The local stack of daemons: child processes that start, run and stop together."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import field
from http import HTTPStatus

import anyio
import anyio.abc
import anyio.to_thread

from shale.core.lazy_dataclass import dataclass
from shale.service.exit_codes import ExitCode
from shale_cli.framework.ports import PortReservation
from shale_cli.framework.probe import ask, local_scheme
from shale_cli.framework.session import CliSession, print_error

STOP_TIMEOUT_S = 40.0
POLL_S = 0.1
POLLS_PER_NOTE = 300
"""A daemon that is not ready after half a minute, and each further half a minute, is named."""


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


def plan_stack(where: Sequence[str], ports: PortReservation, *, port: int, admin_port: int) -> list[DaemonSpec]:
    """Return the daemons of a stack with their ports, which are reserved; 0: any free ports.

    Raises:
        PortInUseError: another process listens on a port.  The readiness probe would mistake it for a child, and the
            new writer would fence the writer of that process.
    """
    # A terminal shows why a daemon ended, and the others must stop at once, also where the environment says otherwise.
    where = (*where, "--set=shutdown.linger=0")

    def spec(name: str, place: int, *arguments: str, data_port: int | None = None) -> DaemonSpec:
        admin = _reserve(ports, name, admin_port + place if admin_port else 0)
        options = (f"--admin-port={admin}", *arguments)
        if data_port is None:
            return DaemonSpec(name, (*where, *options), admin)
        data = _reserve(ports, name, data_port)
        return DaemonSpec(name, (*where, f"--port={data}", *options), admin, data)

    return [
        spec("writer", 0, data_port=port),
        # A restarted compactor would otherwise take its own recent heartbeats for those of a live coordinator.
        spec("compactor", 1, "--take-over"),
        spec("gc", 2),
        spec("reader", 3, data_port=port + 1 if port else 0),
    ]


async def run_stack(plan: Sequence[DaemonSpec], session: CliSession) -> int:
    """Run until a signal, or until a child ends.

    Returns:
        0 after a signal and a clean stop, otherwise the exit code of the child that ended first, never 0.
    """
    stack = _Stack(plan, session)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stack.obey_signals)
            await stack.run(tasks)
            tasks.cancel_scope.cancel()
    finally:
        stack.signal_all(signal.SIGKILL)
    return stack.exit_code


class PortInUseError(Exception):
    """A port of the stack is taken; the message names it."""


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
        """Wait until all daemons are ready, then print their addresses.

        One that cannot become ready ends by itself; a slow machine is no reason to stop the others.
        """
        for child in self._children:
            await self._wait_until_ready(child)
        # Only variables: the settings of the daemons are not read here.
        scheme = local_scheme()
        items = [
            {
                "process": each.planned.name,
                "pid": each.process.pid,
                "data": f"{scheme}://127.0.0.1:{each.planned.port}" if each.planned.port else None,
                "admin": f"{scheme}://127.0.0.1:{each.planned.admin_port}",
            }
            for each in self._children
        ]
        self._session.output.listing("processes", items, ("process", "pid", "data", "admin"))
        sys.stdout.flush()
        self._session.output.note(f"{self._session.location.url} is running; Ctrl-C stops it")

    async def _wait_until_ready(self, child: ChildDaemon) -> None:
        address, polls = f"127.0.0.1:{child.planned.admin_port}", 0
        while True:
            status, reason = await anyio.to_thread.run_sync(ask, address, "readyz", 2.0, abandon_on_cancel=True)
            if status == HTTPStatus.OK:
                return
            polls += 1
            if polls % POLLS_PER_NOTE == 0:
                self._session.output.note(f"the {child.planned.name} is not ready yet: {reason}")
            await anyio.sleep(POLL_S)


def _reserve(ports: PortReservation, name: str, port: int) -> int:
    try:
        return ports.reserve(port)
    except OSError as error:
        raise PortInUseError(
            f"port {port} for the {name} is in use; choose other ports with --port and --admin-port"
        ) from error
