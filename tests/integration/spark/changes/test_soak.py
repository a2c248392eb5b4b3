"""SIGKILL of the driver and of the writer at random moments: every change arrives exactly once, in order.

Writers are killed and replaced under load, and a collector without a grace period deletes unused objects.  The query is
down while a driver starts, many times the minimum age of the collector: only its checkpoint keeps the rows
that it has not read.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.soak.stack import Stack
from tests.integration.spark.changes.harness import Change, Sink
from tests.paths import PYTHONPATH

SECONDS = float(os.environ.get("SHALE_SOAK_SECONDS", "300"))
ROWS_PER_BATCH = 20
PAUSE_S = 0.05
BLIND_SHARE = 0.3
"""Of the drivers that are killed at any time; the others first get to a batch of their own."""
BLIND_LIVES_S = (5.0, 40.0)
AT_WORK_S = (0.0, 15.0)
START_S = 180.0
WRITER_LIVES_S = (5.0, 25.0)


@dataclass
class SentRows:
    """Every row has a different value."""

    sent: set[tuple[str, str]] = field(default_factory=set)
    acknowledged: set[tuple[str, str]] = field(default_factory=set)

    def check(self, given: list[Change]) -> None:
        seqs = [seq for _, seq, *_ in given]
        assert seqs == sorted(seqs), "out of order"
        rows = [(key, value or "") for _, _, op, key, value in given if op == "put"]
        assert len(rows) == len(given) == len(set(rows)), "a change came twice"
        assert set(rows) <= self.sent, "rows that were never written"
        missing = self.acknowledged - set(rows)
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged rows never came"


def write_until(stop: threading.Event, stack: Stack, sent_rows: SentRows) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        rows = [(b"key/%03d" % (number * 7 % 500 + part), b"%d/%d" % (number, part)) for part in range(ROWS_PER_BATCH)]
        told = {(key.hex(), value.hex()) for key, value in rows}
        sent_rows.sent |= told
        if stack.try_write(rows):
            sent_rows.acknowledged |= told
        stop.wait(PAUSE_S)


class Driver:
    """A Spark driver with all its processes."""

    def __init__(self, url: str, folder: Path, *arguments: str) -> None:
        with (folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.spark.changes.follower_process",
                    url,
                    str(folder),
                    *arguments,
                ],
                env={**os.environ, "PYTHONPATH": PYTHONPATH},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the driver, its Java and its workers together."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def live(driver: Driver, place: Path, rng: random.Random) -> None:
    """Run a driver for a while; it must not end by itself."""
    if rng.random() < BLIND_SHARE:
        time.sleep(rng.uniform(*BLIND_LIVES_S))
    else:
        before = len(Sink(place / "batches").files())
        deadline = time.monotonic() + START_S
        while len(Sink(place / "batches").files()) == before and driver.process.poll() is None:
            assert time.monotonic() < deadline, "no batch"
            time.sleep(0.2)
        time.sleep(rng.uniform(*AT_WORK_S))
    assert driver.process.poll() is None, (place / "driver.log").read_text()[-3000:]


def catch_up(url: str, place: Path) -> None:
    """Run a driver that reads the available changes and ends."""
    driver = Driver(url, place, "once")
    try:
        assert driver.process.wait(300) == 0, (place / "driver.log").read_text()[-3000:]
    finally:
        driver.kill()


def killing_writers(stop: threading.Event, stack: Stack, rng: random.Random) -> None:
    while not stop.wait(rng.uniform(*WRITER_LIVES_S)):
        stack.kill("shale_writer")
        stack.start("shale_writer")
        stack.wait_until_ready("shale_writer")


@contextlib.contextmanager
def threads(*works: threading.Thread, stop: threading.Event) -> Iterator[None]:
    for work in works:
        work.start()
    try:
        yield
    finally:
        stop.set()
        for work in works:
            work.join()


@pytest.mark.soak
def test_killed_drivers_and_writers(tmp_path: Path) -> None:
    url, place, logs = f"file://{tmp_path}/db", tmp_path / "query", tmp_path / "logs"
    place.mkdir()
    logs.mkdir()
    rng, stop, sent_rows = random.Random(4), threading.Event(), SentRows()
    stack = Stack(url, logs, {})
    kills = 0
    try:
        for role in ("shale_writer", "shale_gc"):
            stack.start(role)
            stack.wait_until_ready(role)
        catch_up(url, place)  # from here on every change is for this query
        load = threading.Thread(target=write_until, args=(stop, stack, sent_rows))
        fencing = threading.Thread(target=killing_writers, args=(stop, stack, rng))
        deadline = time.monotonic() + SECONDS
        with threads(load, fencing, stop=stop):
            while time.monotonic() < deadline:
                driver = Driver(url, place)
                try:
                    live(driver, place, rng)
                finally:
                    driver.kill()
                kills += 1
        catch_up(url, place)
        codes = stack.stop_all()
    finally:
        stack.kill_all()
    sent_rows.check(Sink(place / "batches").taken())
    assert set(codes.values()) == {0}
    batches = len(Sink(place / "batches").files())
    print(f"{kills} drivers killed, {batches} batches, {len(sent_rows.acknowledged)} rows acknowledged")
    assert len(sent_rows.acknowledged) > 10 * SECONDS
