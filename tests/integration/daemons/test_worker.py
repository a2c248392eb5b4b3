"""Workers as processes of their own, beside a coordinator that does not execute (docs/operations.md 10 to 12)."""

import asyncio
import json
import time
from pathlib import Path

import shale
from tests.integration.daemons.running import Daemon, running

WORKER = "shale_compactor.worker"
QUICK = (
    "--set", "compactor_options.poll_interval=100ms",
    "--set", "compactor_options.commit_compacted_interval=100ms",
    "--set", "compactor_options.worker.compactions_poll_interval=100ms",
)  # fmt: skip
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


def test_two_workers_execute_what_the_coordinator_schedules(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    write(url)
    with (
        running("shale_compactor", "--url", url, "--no-embedded-worker", *QUICK, log=tmp_path / "coordinator") as other,
        running(WORKER, "--url", url, *QUICK, log=tmp_path / "first") as first,
        running(WORKER, "--url", url, *QUICK, log=tmp_path / "second") as second,
    ):
        committed = other.wait_for("compaction.committed")
        finished = [*first.lines("compaction.finished"), *second.lines("compaction.finished")]
        assert committed["compaction_id"] in {line["compaction_id"] for line in finished}
        for worker in (first, second):
            assert worker.get("/readyz", port=worker.port("admin_port")) == (200, "ok\n")
            assert status(worker)["role"] == "worker"
            assert status(worker)["worker"] == worker.wait_for("daemon.ready")["worker"]
            assert worker.stop() == 0, worker.log.read_text()
        assert other.stop() == 0
    assert read(url) == [(b"key%05d" % key, b"%d" % (L0S - 1)) for key in range(200)]


def test_a_worker_waits_for_a_coordinator_and_stops_with_the_database(tmp_path: Path) -> None:
    """F4.23 with processes; and a worker must not go on below a database that is being destroyed."""
    url = f"file://{tmp_path}/store/orders"
    write(url)
    with running(WORKER, "--url", url, *QUICK, log=tmp_path / "worker") as worker:
        worker.wait_for("daemon.ready")
        time.sleep(0.5)
        assert worker.get("/readyz", port=worker.port("admin_port")) == (200, "ok\n")
        (tmp_path / "store" / "orders" / ".destroyed").touch()
        worker.wait_for("daemon.failed")
        assert worker.process.wait(20) == 78
        assert "destroyed" in worker.lines("daemon.failed")[0]["error"]


def test_without_a_database_a_worker_gives_up_in_the_end(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/orders"
    with running(WORKER, "--url", url, "--set", "store.start_timeout=1s", log=tmp_path / "worker") as worker:
        assert worker.process.wait(60) == 69
        (line,) = worker.lines("daemon.failed")
        assert "manifest" in line["error"]
