"""``shale gc plan`` and ``gc run``: plans are printed, saved, executed, and refused if an object is needed again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import shale
from shale.admin.admin import Admin
from shale.gc.options import Task, TaskOptions
from shale.service.config.settings import load_settings
from shale_cli.__main__ import main
from shale_cli.commands.gc.schedule import daemon_arguments
from shale_gc.settings import GcSettings
from tests.integration.cli.goldens import Golden


@pytest.fixture
def versions(url: str, tmp_path: Path) -> Path:
    """Return the folder of the manifests of a database that has several."""
    assert url
    return tmp_path / "db" / "manifest"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.manifest"))


def test_plans_and_dry_runs_are_printed_and_delete_nothing(golden: Golden, url: str, versions: Path) -> None:
    before = names(versions)
    ages = ("age_ms", "size", "reason")
    arguments = ("-r", "manifest", "-m", "0s", "-u", url)
    plan = golden.check("gc-plan", "gc", "plan", *arguments, volatile=ages)
    assert [each["key"].rpartition("/")[2] for each in plan["objects"]] == before[:-1]
    assert plan["objects"][0]["reason"].endswith(f"old, boundary {len(before) - 1}")
    golden.check("gc-run.dry", "gc", "run", *arguments, volatile=ages)
    assert names(versions) == before, "nothing was said about doing it"
    golden.check("gc-run", "gc", "run", "--yes", *arguments, volatile=("deleted_bytes",))
    assert names(versions) == before[-1:]
    golden.check("run-garbage-collection", "run-garbage-collection", "-r", "compactions", "-m", "0s", "-u", url)


def test_a_saved_plan(golden: Golden, url: str, versions: Path, tmp_path: Path) -> None:
    """Only planned objects are deleted; newer ones stay."""
    saved = tmp_path / "plan.json"
    saved.write_text(golden.run("gc", "plan", "-r", "manifest", "-m", "0s", "-u", url, "-o", "json"))
    named = [each["key"].rpartition("/")[2] for each in json.loads(saved.read_text())["objects"]]
    golden.run("kv", "put", "c", "3", "-u", url)
    later = names(versions)
    golden.run("gc", "run", "--plan", str(saved), "--yes", "-u", url)
    assert names(versions) == [name for name in later if name not in named]
    golden.run("gc", "run", "--plan", str(saved), "--yes", "-u", url)  # all of it is gone: nothing to do


def test_a_saved_plan_is_refused_when_something_is_needed_again(
    golden: Golden, url: str, versions: Path, tmp_path: Path
) -> None:
    """A checkpoint of a planned manifest was restored; no object is deleted."""
    saved = tmp_path / "plan.json"

    async def keep() -> None:
        async with Admin(url) as admin:
            first = await admin.checkpoints.create()
            async with shale.Db.open(url) as db:
                await db.put(b"x", b"y")
                await db.flush("memtable")
            pinned = first.id
            saved.write_text(json.dumps(plan_without(admin_plan=await admin.gc.plan(["manifest"], min_age="0s"))))
            assert pinned

    def plan_without(*, admin_plan: Any) -> Any:
        data = admin_plan.as_json()
        pinned = {int(name[:20]) for name in names(versions)} - {
            int(each["key"].rpartition("/")[2][:20]) for each in data["objects"]
        }
        kept = min(pinned)
        data["objects"].append({**data["objects"][0], "key": f"db/manifest/{kept:020}.manifest"})
        return data

    asyncio.run(keep())
    before = names(versions)
    golden.run("gc", "run", "--plan", str(saved), "--yes", "-u", url, code=2)
    assert names(versions) == before


def test_a_store_without_conditional_updates(golden: Golden, url: str, versions: Path, tmp_path: Path) -> None:
    """Boundary files can be switched off for a run, and for a saved plan."""
    saved = tmp_path / "plan.json"
    saved.write_text(golden.run("gc", "plan", "-r", "manifest", "-m", "0s", "-u", url, "-o", "json"))
    golden.run("gc", "run", "--plan", str(saved), "--disable-boundary-files", "--yes", "-u", url)
    assert len(names(versions)) == 1
    golden.run("kv", "put", "c", "3", "-u", url)
    golden.run("gc", "run", "-r", "manifest", "-m", "0s", "--disable-boundary-files", "--yes", "-u", url)
    assert len(names(versions)) == 1
    assert not (tmp_path / "db" / "gc").exists()


def test_a_database_that_was_destroyed_softly_goes(golden: Golden, url: str, tmp_path: Path) -> None:
    """After its grace period, and only in a run with all tasks."""
    folder = tmp_path / "db"
    golden.run("db", "destroy", "--soft", "--yes", "-u", url)
    for arguments in (("--yes",), ("--yes", "-r", "wal"), ("--delete-grace-period", "1h", "--yes")):
        golden.run("gc", "run", *arguments, "-u", url)
        assert (folder / ".destroyed").exists(), arguments
    golden.run("run-garbage-collection", "-r", "wal", "-m", "0s", "-u", url)
    assert (folder / ".destroyed").exists()
    marker = json.loads((folder / ".destroyed").read_text())
    (folder / ".destroyed").write_text(json.dumps({**marker, "destroyed_at_s": marker["destroyed_at_s"] - 60}))
    grace = ("--delete-grace-period", "59s")
    golden.run("gc", "run", *grace, "-u", url)
    assert (folder / ".destroyed").exists(), "nothing was said about doing it"
    golden.check("gc-run.destroyed", "gc", "run", *grace, "--yes", "-u", url, volatile=("deleted_bytes",))
    assert not folder.exists() or not list(folder.rglob("*"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "-r", "everything"),
        ("run", "-r", "wal-fence", "-m", "1h"),
        ("run", "--yes", "--dry-run"),
        ("run", "--plan", "/none/plan.json"),
        ("run", "--plan", "x", "-m", "1h"),
        ("run", "-r", "wal", "--delete-grace-period", "1h"),
        ("run", "--delete-grace-period", "soon"),
    ],
)
def test_invalid_options_are_refused(url: str, arguments: tuple[str, ...]) -> None:
    assert main(["gc", *arguments, "-u", url, "-q"]) == 2


def test_a_schedule_of_slatedb() -> None:
    given = ["-u", "s3://b/db", "--manifest", "min_age=1h,period=5m", "--wal-fence=min_age=8days,period=1h"]
    assert daemon_arguments([*given, "--detach", "min_age=1s,period=2m"])[2:] == [
        text
        for task, section in (
            ("manifest", '{interval = "5m", min_age = "1h"}'),
            ("wal", "null"),
            ("wal_fence", '{interval = "1h", min_age = "8days"}'),
            ("compacted", "null"),
            ("compactions", "null"),
            ("detach", '{interval = "2m"}'),
            ("staged", "null"),
        )
        for text in ("--set", f"garbage_collector_options.{task}_options={section}")
    ]
    options = load_settings(GcSettings, daemon_arguments(given)).settings.options()
    assert options.manifest == TaskOptions(interval_s=300, min_age_s=3600)
    assert options.wal_fence == TaskOptions(interval_s=3600, min_age_s=8 * 86_400)
    assert options.enabled == (Task.MANIFEST, Task.WAL_FENCE)
    for wrong in ([], ["--manifest"], ["--manifest", "min_age=1h"], ["--manifest", "1h"]):
        with pytest.raises(shale.errors.InvalidRequestError):
            daemon_arguments(wrong)
