"""The collector as a process: start, collect, dry run, reload, stop, and a database that is not there or goes away."""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import shale
from tests.integration.daemons.running import Daemon, metric, running

QUICK = tuple(
    text
    for task in ("manifest", "wal", "compacted", "compactions")
    for text in ("--set", f'garbage_collector_options.{task}_options={{interval = "100ms", min_age = "300ms"}}')
)


def gc(folder: Path, *args: str) -> AbstractContextManager[Daemon]:
    return running("shale_gc", "--url", f"file://{folder}/store/db", *QUICK, *args, log=folder / "gc.log")


def write(folder: Path, rounds: int = 4) -> None:
    async def main() -> None:
        (folder / "store").mkdir(exist_ok=True)
        async with shale.Db.open(f"file://{folder}/store/db") as db:
            for number in range(rounds):
                await db.put(b"key", b"%d" % number)
                await db.flush("memtable")

    asyncio.run(main())


def tasks_of(daemon: Daemon, port: int) -> list[dict[str, Any]]:
    return list(json.loads(daemon.get("/statusz", port=port)[1])["tasks"].values())


def wait_until(condition: Callable[[], bool], daemon: Daemon, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, daemon.log.read_text()
        assert daemon.process.poll() is None, daemon.log.read_text()
        time.sleep(0.05)


def manifests(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store" / "db" / "manifest").glob("*.manifest"))


def test_it_collects_tells_about_it_and_stops(tmp_path: Path) -> None:
    write(tmp_path)
    newest = manifests(tmp_path)[-1]
    with gc(tmp_path) as daemon:
        port = daemon.port("admin_port")
        wait_until(lambda: manifests(tmp_path) == [newest], daemon)
        wait_until(lambda: bool(daemon.lines("gc.delete")), daemon)
        assert daemon.get("/readyz", port=port)[0] == 200
        _, text = daemon.get("/metrics", port=port)
        assert metric(text, 'slatedb_gc_deleted_objects_total{db="db",resource="manifest"}') == int(newest[:20]) - 1
        assert metric(text, 'slatedb_gc_versions{db="db",resource="manifest"}') == 1
        assert metric(text, 'slatedb_gc_runs_total{db="db",resource="wal",result="error"}') == 0
        assert daemon.stop() == 0
    assert (tmp_path / "store" / "db" / "gc" / "manifest.boundary").read_text() == str(int(newest[:20]) - 1)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    before = sorted(path for path in tmp_path.joinpath("store").rglob("*"))
    with gc(tmp_path, "--dry-run") as daemon:
        plan = daemon.wait_for("gc.plan")
        assert plan["count"] > 0
        assert plan["bytes"] > 0
        time.sleep(0.5)
        assert daemon.stop(signal.SIGINT) == 0
        assert not daemon.lines("gc.delete")
    assert sorted(path for path in tmp_path.joinpath("store").rglob("*")) == before


def test_it_waits_for_a_database_and_gives_up_in_time(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with gc(tmp_path, "--set", "store.start_timeout=1s") as daemon:
        assert daemon.process.wait(30) == 69
        assert "no manifest" in daemon.log.read_text()


def test_it_ends_when_the_database_is_gone(tmp_path: Path) -> None:
    write(tmp_path)
    with gc(tmp_path) as daemon:
        wait_until(lambda: len(manifests(tmp_path)) == 1, daemon)
        shutil.rmtree(tmp_path / "store" / "db" / "manifest")
        assert daemon.process.wait(30) == 0
        assert daemon.lines("gc.database.gone")


def test_a_broken_manifest_ends_passes_and_not_the_process(tmp_path: Path) -> None:
    write(tmp_path)
    with gc(tmp_path) as daemon:
        port = daemon.port("admin_port")
        # Detaching comes round every ten minutes only: its first pass must be over.
        wait_until(lambda: all(task["last_success_ms"] for task in tasks_of(daemon, port)), daemon)
        newest = tmp_path / "store" / "db" / "manifest" / manifests(tmp_path)[-1]
        good = newest.read_bytes()
        broken = newest.with_name(f"{int(newest.stem) + 1:020}.manifest")
        broken.write_bytes(b"\x00\x02" + bytes(10))
        wait_until(lambda: daemon.get("/readyz", port=port)[0] == 503, daemon)
        failed = daemon.wait_for("gc.task.failed")
        assert broken.name in str(failed["error"])
        _, text = daemon.get("/metrics", port=port)
        assert metric(text, 'slatedb_corruption_total{db="db",resource="manifest"}') > 0
        broken.unlink()
        wait_until(lambda: daemon.get("/readyz", port=port)[0] == 200, daemon)
        assert newest.read_bytes() == good
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--set", "garbage_collector_options.wal_options.min_age=soon"), "min_age"),
        (("--set", 'garbage_collector_options.wal_fence_options={min_age = "1h"}'), "7 days"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    (tmp_path / "store").mkdir()
    with gc(tmp_path, *argv) as daemon:
        assert daemon.process.wait(30) == 78
        assert message in daemon.log.read_text()
    assert not list((tmp_path / "store").iterdir())
