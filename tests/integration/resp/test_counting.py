"""Counters of many clients: connections that break, and a writer that is killed.

Every increment also writes a key of its own in the same transaction, so the counter must be the number of these keys,
whatever the clients have learned.
"""

import contextlib
import random
import socket
import struct
import threading
from pathlib import Path

import pytest
import redis

from tests.integration.resp.test_clients import RESP, hasty, resp_port
from tests.integration.writer.writer_process import writer

CLIENTS = 6
RESET = struct.pack("ii", 1, 0)
"""With this SO_LINGER a close resets the connection: what is on its way is lost."""

ANSWER = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:"


class Counting:
    """Clients that count until they have done so often enough, or the writer is gone."""

    def __init__(self, port: int, *, breaks: bool) -> None:
        self._port = port
        self._breaks = breaks
        self.answered: list[str] = []
        """The keys of increments that were answered."""

        self._threads: list[threading.Thread] = []

    def run(self, times: int, enough: threading.Event | None = None) -> None:
        """Count in threads; ``enough`` is set after a third of it."""
        args = [(number, times, enough) for number in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._count, args=each) for each in args]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _count(self, number: int, times: int, enough: threading.Event | None) -> None:
        rng = random.Random(number)
        waiting = [f"done:{number}:{turn}" for turn in range(times)]
        while waiting:
            with socket.create_connection(("127.0.0.1", self._port), timeout=60) as line:
                while waiting:
                    key = waiting.pop()
                    if self._breaks and rng.random() < 0.3:
                        line.sendall(transaction(key))
                        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        break
                    if not is_answered(line, key):
                        return
                    self.answered.append(key)
                    if enough is not None and len(self.answered) >= CLIENTS * times // 3:
                        enough.set()


def transaction(key: str) -> bytes:
    """Return the commands that count once."""
    return f"MULTI\r\nINCR n\r\nSET {key} 1\r\nEXEC\r\n".encode()


def is_answered(line: socket.socket, key: str) -> bool:
    """Count once; return whether the writer has answered."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        line.sendall(transaction(key))
        while answer.count(b"\r\n") < 6 and (more := line.recv(4096)):
            answer += more
    assert ANSWER.startswith(answer[: len(ANSWER)])
    return answer.count(b"\r\n") == 6


def require_exact(client: "redis.Redis", answered: list[str]) -> int:
    """Check the counter; return it."""
    done = {key.decode() for key in client.scan_iter(match="done:*", count=1000)}
    total = int(client.get("n") or 0)
    assert total == len(done)
    assert set(answered) <= done
    return total


def test_the_sum_is_exact_though_connections_break(tmp_path: Path) -> None:
    with writer(tmp_path, *RESP) as one:
        counting = Counting(resp_port(one), breaks=True)
        counting.run(60)
        counting.join()
        with redis.Redis(port=resp_port(one)) as client:
            assert require_exact(client, counting.answered) >= len(counting.answered) > 0


@pytest.mark.slow
def test_what_was_answered_counts_once_after_a_kill(tmp_path: Path) -> None:
    durable = ("--set", "resp.durability=durable")
    with writer(tmp_path, *RESP, *durable, log="one") as one:
        counting, enough = Counting(resp_port(one), breaks=False), threading.Event()
        counting.run(60, enough)
        assert enough.wait(60)
        one.daemon.process.kill()
        one.daemon.process.wait()
        counting.join()
    with writer(tmp_path, *RESP, log="two") as two, hasty(resp_port(two)) as client:
        total = require_exact(client, counting.answered)
        # Each client waited for one answer at most.
        assert len(counting.answered) <= total <= len(counting.answered) + CLIENTS
        assert client.incr("n") == total + 1


@pytest.mark.slow
def test_an_answered_increment_survives_a_kill_once(tmp_path: Path) -> None:
    durable = ("--set", "resp.durability=durable")
    with writer(tmp_path, *RESP, *durable, log="one") as one, hasty(resp_port(one)) as client:
        assert [client.incr("n") for _ in range(20)] == list(range(1, 21))
        assert client.expire("n", 1000)
        one.daemon.process.kill()
        one.daemon.process.wait()
    with writer(tmp_path, *RESP, log="two") as two, hasty(resp_port(two)) as client:
        assert client.get("n") == b"20"
        assert 0 < client.ttl("n") <= 1000
