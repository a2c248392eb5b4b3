"""The age of the newest backup, as the gc exports it."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import shale
from shale.errors import CorruptionError
from shale.service.config.settings import load_settings
from shale.service.process import Process
from shale_gc.app import collect
from shale_gc.settings import GcSettings
from tests.unit.gc.test_collector_pool import process_of

pytestmark = pytest.mark.anyio
MAIN = ""
"""The label of the main database of these processes."""
NEWEST, MAX_AGE = "slatedb_backup_newest_timestamp_seconds", "slatedb_backup_max_age_seconds"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))


def settings(*names: str) -> GcSettings:
    return load_settings(GcSettings, [f"--set={each}" for each in names]).settings


def value(process: Process[GcSettings], name: str, db: str) -> float | None:
    found: float | None = process.metrics.registry.get_sample_value(name, {"db": db})
    return found


async def until_value(process: Process[GcSettings], db: str, wanted: float) -> None:
    with anyio.fail_after(60):
        while value(process, NEWEST, db) != wanted:  # noqa: ASYNC110 - a gauge has no event
            await anyio.sleep(0.01)


async def written(place: Path, name: str) -> None:
    async with shale.Db.open(f"{place.as_uri()}/store/{name}") as db:
        await db.put(b"k", b"v")


async def backed_up(place: Path, name: str) -> Any:
    async with shale.Admin(f"{place.as_uri()}/store/{name}") as made:
        return await made.backups(f"{place.as_uri()}/backups").create()


async def test_the_newest_backup_of_each_database_is_exported(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await written(tmp_path, name)
    await backed_up(tmp_path, "one")
    chosen = settings(
        f"database.url={tmp_path.as_uri()}/store/one", "databases=two", f"backup.url={tmp_path.as_uri()}/backups",
        "backup.max_age=1h", "backup.interval=20ms", 'database_aliases={ two = "second" }',
    )  # fmt: skip
    process = process_of(chosen)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, process)
        newest = await backed_up(tmp_path, "one")
        await until_value(process, MAIN, newest.started_ms / 1000)
        await until_value(process, "second", 0)
        assert [value(process, MAX_AGE, name) for name in (MAIN, "second")] == [3600, 3600]
        other = await backed_up(tmp_path, "two")
        await until_value(process, "second", other.started_ms / 1000)
        document = tmp_path / "backups" / "backups" / f"{other.id}.json"
        good = document.read_bytes()
        document.unlink()
        await until_value(process, "second", 0)
        document.write_bytes(good[:-9])
        with pytest.raises(CorruptionError):
            await backed_up(tmp_path, "one")
        document.write_bytes(good)
        last = await backed_up(tmp_path, "one")
        await until_value(process, MAIN, last.started_ms / 1000)
        process.draining.set()


async def test_without_a_place_nothing_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_BACKUP__URL", "")
    await written(tmp_path, "one")
    process = process_of(settings(f"database.url={tmp_path.as_uri()}/store/one"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, process)
        with anyio.fail_after(60):
            while value(process, MAX_AGE, MAIN) is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        process.draining.set()
    assert value(process, MAX_AGE, MAIN) == 0
    assert value(process, NEWEST, MAIN) is None
