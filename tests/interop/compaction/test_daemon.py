"""The compactor as a process: start, work, refuse, take over, fence, stop.

Source: docs/reference/health.md and docs/concepts/shutdown.md and docs/reference/exit-codes.md.
"""

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect
from tests.integration.daemons.daemon_process import ENDED_S, Daemon, metric, running

QUICK = (
    "--set", "compactor_options.poll_interval=200ms",
    "--set", "compactor_options.commit_compacted_interval=100ms",
    "--set", "compactor_options.worker.compactions_poll_interval=200ms",
)  # fmt: skip
ROWS = {b"key%05d" % i: b"value %d" % i for i in range(500)}


def url(folder: Path) -> str:
    return f"file://{folder}/db"


def compactor(tmp_path: Path, name: str, *args: str):
    return running("shale_compactor", "--url", url(tmp_path), *QUICK, *args, log=tmp_path / f"{name}.log")


def write_l0s(folder: Path, count: int) -> None:
    async def main() -> None:
        async with Db.open(url(folder)) as db:
            for number in range(count):
                async with db.batch() as batch:
                    for key, value in list(ROWS.items())[number::count]:
                        batch.put(key, value)
                await db.flush(FlushType.MEMTABLE)

    asyncio.run(main())


def trees(folder: Path) -> tuple[int, int]:
    """Return the numbers of L0s and of runs."""

    async def main() -> tuple[int, int]:
        env = Env.system()
        store = connect(f"file://{folder}", env)
        manifest = (await ManifestStore(store, "db", env).read_latest()).value
        await store.aclose()
        return len(manifest.tree.l0), len(manifest.tree.compacted)

    return asyncio.run(main())


def rows(folder: Path) -> dict[bytes, bytes]:
    async def main() -> dict[bytes, bytes]:
        async with Db.open(url(folder)) as db:
            return {row.key: row.value async for row in db.scan()}

    return asyncio.run(main())


def wait_until(condition, daemon: Daemon, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, daemon.log.read_text()
        assert daemon.process.poll() is None, daemon.log.read_text()
        time.sleep(0.1)


def test_it_compacts_tells_about_it_and_stops(tmp_path: Path) -> None:
    write_l0s(tmp_path, 5)
    with compactor(tmp_path, "a") as daemon:
        port = daemon.port("admin_port")
        wait_until(lambda: trees(tmp_path) == (0, 1), daemon)
        assert daemon.get("/readyz", port=port)[0] == 200
        status = json.loads(daemon.get("/statusz", port=port)[1])
        assert (status["epoch"], status["jobs"]) == (1, {})
        text = daemon.get("/metrics", port=port)[1]
        assert metric(text, "slatedb_compactor_jobs_claimed_total") == 1
        assert metric(text, "slatedb_compactor_running") == 0
        assert metric(text, "slatedb_compactor_ssts_written_total") == 1
        assert metric(text, "slatedb_compactor_epoch") == 1
        assert daemon.stop() == 0
        events = [line["event"] for line in daemon.lines() if line["event"].startswith("compaction.")]
        assert events == [f"compaction.{step}" for step in ("submitted", "claimed", "finished", "committed")]
    assert rows(tmp_path) == ROWS


@pytest.mark.slow
def test_a_live_coordinator_is_left_alone_or_taken_over(tmp_path: Path) -> None:
    write_l0s(tmp_path, 1)
    with compactor(tmp_path, "first", "--set", "compactor_options.poll_interval=5s") as first:
        first.wait_for("daemon.ready")
        with compactor(tmp_path, "shy", "--set", "compactor_options.poll_interval=5s") as shy:
            assert shy.process.wait(ENDED_S) == 75
            assert "--take-over" in shy.log.read_text()
        with compactor(tmp_path, "bold", "--take-over") as bold:
            bold.wait_for("daemon.ready")
            assert first.process.wait(ENDED_S) == 80
            assert [line["level"] for line in first.lines("compactor.fenced")] == ["warning"]
            assert bold.stop() == 0
        with compactor(tmp_path, "next", "--set", "compactor_options.poll_interval=5s") as heir:
            heir.wait_for("daemon.ready")  # bold has released leadership, so no wait for a timeout
            assert heir.stop() == 0


@pytest.mark.slow
def test_without_a_database_it_waits_and_gives_up(tmp_path: Path) -> None:
    with compactor(tmp_path, "a", "--set", "store.start_timeout=1s") as daemon:
        assert daemon.process.wait(ENDED_S) == 69


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_successor_of_a_dead_or_stopped_compactor_resumes(tmp_path: Path, number: int) -> None:
    write_l0s(tmp_path, 4)
    with compactor(tmp_path, "a", "--no-embedded-worker") as daemon:
        daemon.wait_for("compaction.submitted")
        assert daemon.stop(number) == (0 if number == signal.SIGTERM else -number)
    with compactor(tmp_path, "b", "--take-over") as daemon:
        wait_until(lambda: trees(tmp_path) == (0, 1), daemon)
        assert daemon.stop() == 0
    assert rows(tmp_path) == ROWS
