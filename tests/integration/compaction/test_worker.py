"""Workers as separate processes, beside a coordinator that executes no job.

Source: docs/reference/health.md and docs/concepts/shutdown.md and docs/reference/exit-codes.md.
"""

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

import shale
from tests.integration.daemons.daemon_process import ENDED_S, QUICK_COMPACTION, Daemon, running

WORKER = "shale_compactor.worker"
L0S = 8


def write(url: str) -> None:
    async def main() -> None:
        async with shale.Db.open(url) as db:
            for number in range(L0S):
                for key in range(200):
                    await db.put(b"key%05d" % key, b"%d" % number)
                await db.flush("memtable")

    asyncio.run(main())


def read(url: str) -> list[tuple[bytes, bytes]]:
    async def main() -> list[tuple[bytes, bytes]]:
        async with shale.Db.open(url) as db:
            return [(row.key, row.value) async for row in db.scan()]

    return asyncio.run(main())


def status(daemon: Daemon) -> dict[str, object]:
    return json.loads(daemon.get("/statusz", port=daemon.port("admin_port"))[1])


@pytest.mark.slow
def test_two_workers_execute_what_the_coordinator_schedules(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    write(url)
    with (
        running(
            "shale_compactor", "--url", url, "--no-embedded-worker", *QUICK_COMPACTION, log=tmp_path / "coordinator"
        ) as other,
        running(WORKER, "--url", url, *QUICK_COMPACTION, log=tmp_path / "first") as first,
        running(WORKER, "--url", url, *QUICK_COMPACTION, log=tmp_path / "second") as second,
    ):
        committed = other.wait_for("compaction.committed")
        for worker in (first, second):
            assert worker.get("/readyz", port=worker.port("admin_port")) == (200, "ok\n")
            assert status(worker)["role"] == "worker"
            assert status(worker)["worker"] == worker.wait_for("daemon.ready")["worker"]
            assert worker.stop() == 0, worker.log.read_text()
        assert other.stop() == 0
        finished = [*first.lines("compaction.finished"), *second.lines("compaction.finished")]
        assert committed["compaction_id"] in {line["compaction_id"] for line in finished}
    assert read(url) == [(b"key%05d" % key, b"%d" % (L0S - 1)) for key in range(200)]


def test_a_stopped_worker_gives_its_job_back_at_once(tmp_path: Path) -> None:
    """Otherwise the next worker would have to wait for the heartbeat timeout."""
    url = f"file://{tmp_path}/store/orders"
    write(url)
    go = tmp_path / "go"
    held = (
        *QUICK_COMPACTION,
        "--set",
        'compactor_options.worker.compaction_filters=["tests.integration.daemons.held_filter:Held"]',
    )
    with (
        running(
            "shale_compactor", "--url", url, "--no-embedded-worker", *QUICK_COMPACTION, log=tmp_path / "coordinator"
        ) as other,
        running(WORKER, "--url", url, *held, log=tmp_path / "first", env={"TEST_HELD_UNTIL": str(go)}) as first,
    ):
        job = first.wait_for("compaction.claimed")["compaction_id"]
        assert list(status(first)["jobs"]) == [job]
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("shutdown.started")
        go.touch()
        assert first.process.wait(ENDED_S) == 0, first.log.read_text()
        assert [line["compaction_id"] for line in first.lines("compaction.released")] == [job]
        assert first.lines("compaction.finished") == []
        with running(WORKER, "--url", url, *QUICK_COMPACTION, log=tmp_path / "second") as second:
            assert second.wait_for("compaction.finished")["compaction_id"] == job
        assert other.lines("compaction.reclaimed") == []
    assert read(url) == [(b"key%05d" % key, b"%d" % (L0S - 1)) for key in range(200)]


def test_a_running_worker_takes_over_new_numbers(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    write(url)
    file = tmp_path / "shale.toml"
    file.write_text(settings("max_concurrent_compactions = 1"))
    with running(WORKER, "--url", url, "--config", str(file), *QUICK_COMPACTION, log=tmp_path / "worker") as worker:
        worker.wait_for("daemon.ready")
        file.write_text(settings("max_concurrent_compactions = 3", "heartbeat_interval = '2s'"))
        worker.process.send_signal(signal.SIGHUP)
        line = worker.wait_for("config.reloaded")
        assert line["ok"] is True
        changed = {"max_concurrent_compactions", "heartbeat_interval"}
        assert set(line["key"]) == {f"compactor_options.worker.{name}" for name in changed}
        assert line["restart_needed"] == []
        assert status(worker)["max_concurrent_compactions"] == 3
        file.write_text(settings("max_concurrent_compactions = 0"))
        worker.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while len(worker.lines("config.reloaded")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert worker.lines("config.reloaded")[1]["ok"] is False
        assert status(worker)["max_concurrent_compactions"] == 3
        assert worker.stop() == 0


def settings(*lines: str) -> str:
    return "\n".join(["[compactor_options.worker]", *lines, ""])


@pytest.mark.slow
@pytest.mark.fault("F4.23")
def test_a_worker_waits_for_a_coordinator_and_stops_with_the_database(tmp_path: Path) -> None:
    """A worker must also not continue on a database that is being destroyed."""
    url = f"file://{tmp_path}/store/orders"
    write(url)
    with running(WORKER, "--url", url, *QUICK_COMPACTION, log=tmp_path / "worker") as worker:
        worker.wait_for("daemon.ready")
        time.sleep(0.5)
        assert worker.get("/readyz", port=worker.port("admin_port")) == (200, "ok\n")
        (tmp_path / "store" / "orders" / ".destroyed").touch()
        worker.wait_for("daemon.failed")
        assert worker.process.wait(ENDED_S) == 78
        assert "destroyed" in worker.lines("daemon.failed")[0]["error"]


@pytest.mark.slow
def test_without_a_database_a_worker_gives_up_in_the_end(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    with running(WORKER, "--url", url, "--set", "store.start_timeout=5s", log=tmp_path / "worker") as worker:
        assert worker.process.wait(ENDED_S) == 69
        (line,) = worker.lines("daemon.failed")
        assert "manifest" in line["error"]
