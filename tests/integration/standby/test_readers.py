"""Readers serve throughout a takeover: no read fails, and every acknowledged row is visible within a bounded time."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread

import pytest

from shale.sync import DbReader
from tests.integration.daemons.daemon_process import running
from tests.integration.standby.standby_process import Member, pair, wait_for

POLL_S = 0.1
STALE_S = 20.0
"""Many polls: a busy machine takes its time."""
KEY = b"count"

Read = Callable[[], int]


@dataclass
class ReadLoop:
    """Reads one key all the time, whose values count up."""

    read: Read
    newest: int = 0
    count: int = 0
    failures: list[str] = field(default_factory=list)

    def run(self, ends: Event) -> None:
        while not ends.is_set():
            try:
                value = self.read()
            except Exception as error:  # noqa: BLE001 - any error is a failed read
                self.failures.append(repr(error))
            else:
                if value < self.newest:
                    self.failures.append(f"{value} after {self.newest}")
                self.newest = max(self.newest, value)
            self.count += 1
            ends.wait(0.01)


@contextmanager
def reading(*reads: Read) -> Iterator[list[ReadLoop]]:
    """Read in one thread for each function until the end of the block."""
    loops, ends = [ReadLoop(read) for read in reads], Event()
    threads = [Thread(target=loop.run, args=(ends,)) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield loops
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@contextmanager
def readers(folder: Path) -> Iterator[list[Read]]:
    """Run a reader as a daemon and two in this process: with a checkpoint of its own, and without."""
    url = f"file://{folder}/store/orders"
    options = ("--url", url, "--port", "0", "--set", f"manifest_poll_interval={POLL_S}s")
    with ExitStack() as stack:
        daemon = stack.enter_context(running("shale_reader", *options, log=folder / "reader"))
        port = daemon.port("port")

        def over_http() -> int:
            status, body, _ = daemon.request("GET", f"/v1/kv/{KEY.decode()}", port=port)
            if status != 200:
                raise HTTPException(f"{status} {body!r}")
            return int(body)

        reads: list[Read] = [over_http]
        for follow_latest in (False, True):
            reader = stack.enter_context(
                DbReader.open(url, manifest_poll_interval_s=POLL_S, follow_latest=follow_latest)
            )
            reads.append(lambda reader=reader: int(reader.get(KEY) or b"-1"))
        yield reads


def wait_until_seen(loops: list[ReadLoop], number: int) -> None:
    deadline_s = time.monotonic() + STALE_S
    while any(loop.newest < number for loop in loops):
        assert time.monotonic() < deadline_s, f"{number} is not visible: {[loop.newest for loop in loops]}"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["kill", "terminate", "promote"])
def test_readers_serve_throughout_a_takeover(tmp_path: Path, stop: str) -> None:
    with pair(tmp_path) as (first, second):
        assert first.put(KEY, b"1") == 204
        with readers(tmp_path) as reads, reading(*reads) as loops:
            wait_until_seen(loops, 1)
            assert first.put(KEY, b"2") == 204
            end(stop, first, second)
            # The last row of the old writer, while there may be no writer.
            wait_until_seen(loops, 2)
            wait_for(lambda: second.put(KEY, b"3") == 204, "the standby does not take over")
            counts = [loop.count for loop in loops]
            wait_until_seen(loops, 3)
            wait_for(lambda: all(loop.count > count for loop, count in zip(loops, counts, strict=True)), "no reads")
        assert [loop.failures for loop in loops] == [[], [], []]


def end(stop: str, first: Member, second: Member) -> None:
    if stop == "kill":
        first.daemon.process.kill()
    elif stop == "terminate":
        first.daemon.process.terminate()
    else:
        assert second.promote()[0] == 200
