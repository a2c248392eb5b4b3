"""``python -m tests.soak.clients ROLE --config FILE``: the clients of one kind, until SIGTERM."""

import argparse
import asyncio
import json
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.soak.clients.session import ClientSession, Shared


def http(shared: Shared) -> Sequence[ClientSession]:
    """Make clients of the writer over HTTP."""
    from tests.soak.clients.http_session import HttpWriterSession

    return [HttpWriterSession(shared, f"http-{number}") for number in range(3)]


def resp(shared: Shared) -> Sequence[ClientSession]:
    """Make clients of the writer over RESP."""
    from tests.soak.clients.resp_session import RespSession

    return [RespSession(shared, f"resp-{number}") for number in range(2)]


def readers(shared: Shared) -> Sequence[ClientSession]:
    """Make clients of reader daemons, over both protocols."""
    from tests.soak.clients.http_session import HttpReaderSession
    from tests.soak.clients.resp_session import RespReaderSession

    http_sessions = [HttpReaderSession(shared, f"http-reader-{number}") for number in range(2)]
    return [*http_sessions, RespReaderSession(shared, "resp-reader")]


def embedded(shared: Shared) -> Sequence[ClientSession]:
    """Make readers that run in this process, and reads by commands."""
    from tests.soak.clients.command_session import CommandSession
    from tests.soak.clients.embedded import ShaleReaderSession

    return [ShaleReaderSession(shared, "embedded"), CommandSession(shared, "cli")]


def wheel_reader(shared: Shared) -> Sequence[ClientSession]:
    """Make a reader of the slatedb package."""
    from tests.soak.clients.embedded import WheelReaderSession

    return [WheelReaderSession(shared, "wheel-reader")]


ROLES: dict[str, Callable[[Shared], Sequence[ClientSession]]] = {
    "http": http,
    "resp": resp,
    "readers": readers,
    "embedded": embedded,
    "wheel-reader": wheel_reader,
}
FEED = "feed"
WAKES_S = 0.5


def main() -> None:
    """Read the command line and run the clients."""
    parser = argparse.ArgumentParser(prog="tests.soak.clients")
    parser.add_argument("role", choices=[*ROLES, FEED])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True)
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    shared = Shared.of(config, arguments.name)
    signal.signal(signal.SIGTERM, lambda _number, _frame: shared.stop.set())
    if arguments.role == FEED:
        from tests.soak.clients.feed_consumer import Consumer

        asyncio.run(Consumer(shared).follow())
        return
    threads = [threading.Thread(target=session.run) for session in ROLES[arguments.role](shared)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        # Handlers of signals run in this thread, which another thread's signal does not wake.
        for thread in threads:
            thread.join(WAKES_S)


if __name__ == "__main__":
    main()
