"""Worker processes that serve several databases (docs/how-to/several-databases.md)."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

import shale
from tests.integration.daemons.daemon_process import Daemon, metric, running

POLLS = ("--set", "compactor_options.worker.compactions_poll_interval=100ms", "--set", "databases_interval=200ms")
HEARTBEATS = ("--set", "compactor_options.worker.heartbeat_interval=500ms")
COORDINATES = (
    "--no-embedded-worker",
    "--set", "compactor_options.poll_interval=100ms",
    "--set", "compactor_options.commit_compacted_interval=100ms",
    "--set", "compactor_options.worker_heartbeat_timeout=2s",
    *HEARTBEATS,
)  # fmt: skip
HELD = 'compactor_options.worker.compaction_filters=["tests.integration.daemons.held_filter:Held"]'
L0S = 8
ROWS = [(b"key%05d" % key, b"%d" % (L0S - 1)) for key in range(200)]


def write(folder: Path, name: str) -> None:
    async def main() -> None:
        (folder / "store").mkdir(exist_ok=True)
        async with shale.Db.open(f"file://{folder}/store/{name}", compactor=False, gc=False) as db:
            for number in range(L0S):
                for key in range(200):
                    await db.put(b"key%05d" % key, b"%d" % number)
                await db.flush("memtable")

    asyncio.run(main())


def read(folder: Path, name: str) -> list[tuple[bytes, bytes]]:
    async def main() -> list[tuple[bytes, bytes]]:
        async with shale.Db.open(f"file://{folder}/store/{name}") as db:
            return [(row.key, row.value) async for row in db.scan()]

    return asyncio.run(main())


def worker(folder: Path, log: str, *args: str, env: dict[str, str] | None = None) -> AbstractContextManager[Daemon]:
    argv = ("--store", f"file://{folder}/store", *POLLS, *args)
    return running("shale_compactor.worker", *argv, log=folder / log, env=env)


def coordinator(folder: Path, name: str) -> AbstractContextManager[Daemon]:
    url = f"file://{folder}/store/{name}"
    return running("shale_compactor", "--url", url, *COORDINATES, log=folder / f"{name}.log")


def status(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.get("/statusz", port=daemon.port("admin_port"))[1])
    return found


def wait_until(condition: Callable[[], bool], daemon: Daemon, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, daemon.log.read_text()
        assert daemon.process.poll() is None, daemon.log.read_text()
        time.sleep(0.05)


def finished(daemon: Daemon) -> set[str]:
    return {line["db"] for line in daemon.lines("compaction.finished")}


@pytest.mark.slow
def test_one_is_broken_one_comes_later_and_one_goes(tmp_path: Path) -> None:
    for name in ("good", "broken", "gone"):
        write(tmp_path, name)
    damaged = tmp_path / "store" / "broken" / "manifest" / f"{99:020}.manifest"
    damaged.write_bytes(b"damaged")
    with (
        coordinator(tmp_path, "good") as other,
        worker(tmp_path, "worker.log", "--set", "databases=good", "--set", "databases_below=") as daemon,
    ):
        port = daemon.port("admin_port")
        other.wait_for("compaction.committed")
        wait_until(lambda: set(status(daemon)["databases"]) == {"good", "gone"}, daemon)
        wait_until(lambda: "broken" in status(daemon)["failed"], daemon)
        code, text = daemon.get("/readyz?verbose", port=port)
        assert code == 200, text
        assert "broken: " in text
        assert daemon.lines("worker.database.failed")[0]["db"] == "broken"
        exposition = daemon.get("/metrics", port=port)[1]
        for name, is_up in (("good", 1), ("gone", 1), ("broken", 0)):
            assert metric(exposition, f'slatedb_compactor_worker_up{{db="{name}"}}') == is_up
        assert metric(exposition, 'slatedb_compactor_jobs_claimed_total{db="good"}') == 1

        (tmp_path / "store" / "gone").rename(tmp_path / "removed")  # at once: coordinators use it
        wait_until(lambda: set(status(daemon)["databases"]) == {"good"}, daemon)
        damaged.unlink()
        write(tmp_path, "later")
        with coordinator(tmp_path, "later") as later, coordinator(tmp_path, "broken") as repaired:
            later.wait_for("compaction.committed")
            repaired.wait_for("compaction.committed")
        assert finished(daemon) == {"good", "later", "broken"}
        wait_until(lambda: daemon.get("/readyz", port=port) == (200, "ok\n"), daemon)
        (tmp_path / "store" / "later" / ".destroyed").touch()
        wait_until(lambda: "later" not in status(daemon)["databases"], daemon)
        assert daemon.stop() == 0, daemon.log.read_text()
    for name in ("good", "broken"):
        assert read(tmp_path, name) == ROWS


@pytest.mark.slow
def test_another_worker_takes_over_after_a_kill(tmp_path: Path) -> None:
    """The jobs of every database are reclaimed, and none is lost or done twice."""
    names = ("a", "b", "c")
    for name in names:
        write(tmp_path, name)
    go = tmp_path / "go"
    databases = ("--set", f"databases={','.join(names)}")
    with ExitStack() as stack:
        coordinators = [stack.enter_context(coordinator(tmp_path, name)) for name in names]
        held = {"TEST_HELD_UNTIL": str(go)}
        first = stack.enter_context(worker(tmp_path, "first.log", *databases, *HEARTBEATS, "--set", HELD, env=held))
        wait_until(lambda: len(first.lines("compaction.claimed")) == len(names), first)
        jobs = {line["compaction_id"] for line in first.lines("compaction.claimed")}
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(60)
        second = stack.enter_context(worker(tmp_path, "second.log", *databases, *HEARTBEATS))
        for each in coordinators:
            assert each.wait_for("compaction.reclaimed")["compaction_id"] in jobs
            assert each.wait_for("compaction.committed")["compaction_id"] in jobs
        assert finished(second) == set(names)
        assert second.stop() == 0
        assert not first.lines("compaction.finished")
    for name in names:
        assert read(tmp_path, name) == ROWS
