"""The collector as a process: start, collect, dry run, reload, stop, and a missing or deleted database."""

import asyncio
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import shale
from tests.integration.daemons.daemon_process import ENDED_S, REQUEST_S, Daemon, metric, running

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


def make_older(folder: Path) -> None:
    """Make every manifest older than any ``min_age``."""
    for path in (folder / "store").rglob("*.manifest"):
        os.utime(path, (0, 0))


def tasks_of(daemon: Daemon, port: int) -> list[dict[str, Any]]:
    return list(json.loads(daemon.get("/statusz", port=port)[1])["tasks"].values())


def wait_until(condition: Callable[[], bool], daemon: Daemon, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, daemon.log.read_text()
        assert daemon.process.poll() is None, daemon.log.read_text()
        time.sleep(0.05)


def manifests(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store" / "db" / "manifest").glob("*.manifest"))


def remove(folder: Path, path: str) -> None:
    """Remove a directory at once: the collector removes empty ones, too, which ``rmtree`` takes for an error."""
    (folder / "store" / path).rename(folder / "removed")


def test_it_collects_tells_about_it_and_stops(tmp_path: Path) -> None:
    write(tmp_path)
    newest = manifests(tmp_path)[-1]
    with gc(tmp_path) as daemon:
        port = daemon.port("admin_port")
        wait_until(lambda: manifests(tmp_path) == [newest], daemon)
        wait_until(lambda: bool(daemon.lines("gc.delete")), daemon)
        assert daemon.get("/readyz", port=port)[0] == 200
        # An object is counted when its record is gone, too, which is after the object.
        deleted = 'slatedb_gc_deleted_objects_total{db="db",resource="manifest"}'
        wait_until(lambda: metric(daemon.get("/metrics", port=port)[1], deleted) == int(newest[:20]) - 1, daemon)
        _, text = daemon.get("/metrics", port=port)
        assert metric(text, 'slatedb_gc_versions{db="db",resource="manifest"}') == 1
        assert metric(text, 'slatedb_gc_runs_total{db="db",resource="wal",result="error"}') == 0
        assert daemon.stop() == 0
    assert (tmp_path / "store" / "db" / "gc" / "manifest.boundary").read_text() == str(int(newest[:20]) - 1)


@pytest.mark.slow
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


def test_one_pass_and_the_end(tmp_path: Path) -> None:
    """Another program may start such a job at fixed times; a missing database is no error."""
    write(tmp_path)
    make_older(tmp_path)
    with gc(tmp_path, "--once") as daemon:
        assert daemon.process.wait(ENDED_S) == 0
        assert len(manifests(tmp_path)) == 1
        assert daemon.lines("gc.delete")
    shutil.rmtree(tmp_path / "store" / "db")
    with gc(tmp_path, "--once") as daemon:
        assert daemon.process.wait(ENDED_S) == 69
        assert "no manifest below db" in daemon.log.read_text()


@pytest.mark.slow
def test_it_waits_for_a_database_and_gives_up_in_time(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with gc(tmp_path, "--set", "store.start_timeout=1s") as daemon:
        assert daemon.process.wait(ENDED_S) == 69
        assert "no manifest" in daemon.log.read_text()


@pytest.mark.slow
def test_it_ends_when_the_database_is_gone(tmp_path: Path) -> None:
    write(tmp_path)
    with gc(tmp_path) as daemon:
        wait_until(lambda: len(manifests(tmp_path)) == 1, daemon)
        remove(tmp_path, "db/manifest")
        assert daemon.process.wait(ENDED_S) == 0
        assert daemon.lines("gc.database.removed")


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
        assert daemon.process.wait(ENDED_S) == 78
        assert message in daemon.log.read_text()
    assert not list((tmp_path / "store").iterdir())


def write_at(folder: Path, path: str, rounds: int = 4) -> None:
    async def main() -> None:
        async with shale.Db.open(path, store=f"file://{folder}/store") as db:
            for number in range(rounds):
                await db.put(b"key", b"%d" % number)
                await db.flush("memtable")

    (folder / "store").mkdir(exist_ok=True)
    asyncio.run(main())


def manifests_at(folder: Path, path: str) -> int:
    return len(list((folder / "store" / path / "manifest").glob("*.manifest")))


@pytest.mark.slow
def test_several_databases_of_one_store(tmp_path: Path) -> None:
    """Each has its own label, a new one is found, and a deleted one ends only its own loop."""
    for path in ("tenants/a", "tenants/b", "apart"):
        write_at(tmp_path, path)
    several = ("--set", "databases=apart", "--set", "databases_below=tenants")
    with running(
        "shale_gc", "--store", f"file://{tmp_path}/store", *QUICK, *several, log=tmp_path / "gc.log"
    ) as daemon:
        port = daemon.port("admin_port")
        paths = ("tenants/a", "tenants/b", "apart")
        wait_until(lambda: all(manifests_at(tmp_path, path) == 1 for path in paths), daemon)
        remove(tmp_path, "tenants/a/manifest")
        wait_until(lambda: bool(daemon.lines("gc.database.removed")), daemon)
        assert daemon.lines("gc.database.removed")[0]["db"] == "tenants/a"
        write_at(tmp_path, "tenants/b")
        wait_until(lambda: manifests_at(tmp_path, "tenants/b") == 1, daemon)
        told = json.loads(daemon.get("/v1/admin/gc", port=port)[1])["databases"]
        assert sorted(each["database"] for each in told) == ["apart", "tenants/b"]
        assert daemon.get("/readyz", port=port)[0] == 200
        _, text = daemon.get("/metrics", port=port)
        for path in ("tenants/a", "tenants/b", "apart"):
            assert metric(text, f'slatedb_gc_deleted_objects_total{{db="{path}",resource="manifest"}}') > 0
        assert daemon.stop() == 0


def test_passes_are_started_and_planned_over_http(tmp_path: Path) -> None:
    write(tmp_path)
    slow = tuple(text.replace('"100ms"', '"1h"') for text in QUICK)
    with running("shale_gc", "--url", f"file://{tmp_path}/store/db", *slow, log=tmp_path / "gc.log") as daemon:
        port = daemon.port("admin_port")
        wait_until(lambda: all(task["last_success_ms"] for task in tasks_of(daemon, port)), daemon)
        write(tmp_path)
        make_older(tmp_path)
        before = manifests(tmp_path)
        wanted = {"resources": ["manifest"], "min_age": "300ms", "database": "db"}
        status, body = call(port, "/v1/admin/gc/plan", wanted)
        plan = json.loads(body)
        assert status == 200
        assert [each["key"].rpartition("/")[2] for each in plan["objects"]] == before[:-1]
        assert manifests(tmp_path) == before, "a plan writes nothing"
        assert call(port, "/v1/admin/gc", {"resources": ["manifest"]})[0] == 202
        wait_until(lambda: manifests(tmp_path) == before[-1:], daemon)
        assert call(port, "/v1/admin/gc", {"database": "other"})[0] == 404
        assert call(port, "/v1/admin/gc", {"resources": ["everything"]})[0] == 400
        assert call(port, "/v1/admin/gc", {"resources": "manifest"})[0] == 400
        assert daemon.stop() == 0


def test_each_database_may_have_a_wal_store_of_its_own(tmp_path: Path) -> None:
    """Passes and plans use it, and a database that does not exist yet is waited for."""
    stores = {path: f"file://{tmp_path}/wal-{path}" for path in ("a", "b")}

    async def make(path: str) -> None:
        async with shale.Db.open(path, store=f"file://{tmp_path}/store", wal_store=stores[path]) as db:
            for number in range(4):
                await db.put(b"key", b"%d" % number)
                await db.flush("memtable")

    def rows_in(path: str) -> int:
        return sum(1 for file in (tmp_path / f"wal-{path}" / path / "wal").glob("*.sst") if file.stat().st_size)

    for name in ("store", "wal-a", "wal-b"):
        (tmp_path / name).mkdir()
    asyncio.run(make("a"))
    named = ", ".join(f'{path} = "{url}"' for path, url in stores.items())
    logs = ("--set", 'garbage_collector_options.wal_options={interval = "1h", min_age = "0s"}')
    several = ("--set", "databases=a,b", "--set", f"wal_stores={{ {named} }}", "--set", "databases_interval=200ms")
    with running("shale_gc", "--store", f"file://{tmp_path}/store", *logs, *several, log=tmp_path / "gc.log") as daemon:
        port = daemon.port("admin_port")
        wait_until(lambda: rows_in("a") == 1, daemon)
        wait_until(lambda: "b" in json.loads(daemon.get("/v1/admin/gc", port=port)[1])["waiting"], daemon)
        assert call(port, "/v1/admin/gc", {"resources": ["wal_fence"]})[0] == 400
        asyncio.run(make("b"))
        wait_until(lambda: set(databases(daemon, port)) == {"a", "b"}, daemon)
        wait_until(lambda: bool(databases(daemon, port)["b"]["tasks"]["wal"]["last_success_ms"]), daemon)
        asyncio.run(make("b"))
        assert rows_in("b") > 1
        wanted = {"resources": ["wal"], "database": "b"}
        planned = json.loads(call(port, "/v1/admin/gc/plan", {**wanted, "min_age": "0s"})[1])["objects"]
        assert len(planned) == rows_in("b") - 1
        assert call(port, "/v1/admin/gc", wanted)[0] == 202
        wait_until(lambda: rows_in("b") == 1, daemon)
        assert daemon.stop() == 0


def databases(daemon: Daemon, port: int) -> dict[str, Any]:
    """Return the databases by path, from the admin port."""
    return {each["database"]: each for each in json.loads(daemon.get("/v1/admin/gc", port=port)[1])["databases"]}


def call(port: int, path: str, fields: dict[str, Any]) -> tuple[int, str]:
    """POST a JSON table."""
    body = json.dumps(fields)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body.encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_a_checkpoint_on_its_admin_port_keeps_what_it_would_collect(tmp_path: Path) -> None:
    write(tmp_path)
    with gc(tmp_path) as daemon:
        port = daemon.port("admin_port")
        json_ = {"Content-Type": "application/json"}
        answer = daemon.request("POST", "/v1/admin/checkpoints", port=port, body=b'{"name": "kept"}', headers=json_)
        status, body = answer[:2]
        made = json.loads(body)
        assert (status, made["name"]) == (201, "kept")
        write(tmp_path)
        kept = f"{made['manifest_id']:020d}.manifest"
        newest = manifests(tmp_path)[-1]
        wait_until(lambda: manifests(tmp_path) == [kept, newest], daemon)
        assert daemon.request("DELETE", f"/v1/admin/checkpoints/{made['id']}", port=port)[0] == 204
        wait_until(lambda: kept not in manifests(tmp_path), daemon)
        assert daemon.stop() == 0
