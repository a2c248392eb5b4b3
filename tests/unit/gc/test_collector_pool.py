"""Several databases in one collector process: their WALs, databases added later, and isolation of failures."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import shale
from shale.env import Env
from shale.errors import CorruptionError, LatestRecordMissing
from shale.format.manifest import decode_manifest
from shale.gc.options import Task
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale.service.process import Process
from shale.store.connect import connect, open_store
from shale.store.memory import MemoryStore
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Manifest
from shale_gc.collector_pool import CollectorPool
from shale_gc.settings import GcSettings
from tests.unit.service.processes import make_process

pytestmark = pytest.mark.anyio
TASKS = ("manifest", "wal", "compacted", "compactions")
QUICK = [f'garbage_collector_options.{task}_options={{interval = "20ms", min_age = "0s"}}' for task in TASKS]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setattr("shale.store.connect.memory_stores", {})


def settings(*argv: str) -> GcSettings:
    return load_settings(
        GcSettings, [*(f"--set={text}" for text in (*QUICK, "databases_interval=20ms")), *argv]
    ).settings


def process_of(chosen: GcSettings, store: Any = None) -> Process[GcSettings]:
    env, location, wal_url = Env.system(), chosen.database.location(), chosen.database.wal_store_url()
    return make_process(
        chosen,
        "gc",
        env=env,
        store=store if store is not None else connect(location.store_url, env),
        wal_store=None if wal_url is None else connect(wal_url, env),
        location=location,
    )


@asynccontextmanager
async def running(pool: CollectorPool) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        yield
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while True:
            if condition():
                return
            await anyio.sleep(0.01)


def keys(url: str, below: str = "") -> list[str]:
    store = open_store(url)
    assert isinstance(store, MemoryStore)
    return [key for key in store.objects if key.startswith(below)]


async def make(path: str, wal: str | None = None) -> None:
    """Create a database with garbage: old manifests, and WAL files that are never replayed."""
    async with shale.Db.open(path, store="memory:///", wal_store=wal) as db:
        for number in range(3):
            await db.put(b"k", b"%d" % number)
            await db.flush("memtable")


def rows_in(url: str, path: str) -> int:
    """Return WAL files with rows."""
    store = open_store(url)
    assert isinstance(store, MemoryStore)
    return sum(1 for key, found in store.objects.items() if key.startswith(f"{path}/wal/") and len(found.data))


async def test_each_database_has_the_wal_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL store comes from the settings, from the manifest, or is the main store."""

    def decode(data: bytes, path: str) -> Manifest:
        uri = "memory://told/" if path.startswith("told/") else None
        return replace(decode_manifest(bytes(data)), wal_object_store_uri=uri)

    places = {"named": "memory://named/", "told": "memory://told/", "other": "memory://other/", "here": "memory:///"}
    for path, wal in places.items():
        await make(path, wal if path != "here" else None)
        assert rows_in(wal, path) >= 3
    monkeypatch.setattr("shale.protocol.manifest_store.DECODE", decode)
    named = '{ named = "memory://named/", here = "memory:///" }'
    pool = CollectorPool(
        process_of(
            settings(
                "--store", "memory:///", "--set", "databases=named,told,other,here", "--wal-store", "memory://other/",
                "--set", f"wal_stores={named}",
            )
        )
    )  # fmt: skip
    async with running(pool):
        await until(lambda: all(rows_in(wal, path) <= 1 for path, wal in places.items()))
        assert not any(state.last_error for _, collector in pool for state in collector.states.values())


async def test_an_unnamed_wal_is_an_error_and_not_an_empty_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    await make("db", "memory://logs/")

    def decode(data: bytes, path: str) -> Manifest:
        del path
        return replace(decode_manifest(bytes(data)), wal_object_store_uri="ftp://logs")

    monkeypatch.setattr("shale.protocol.manifest_store.DECODE", decode)
    pool = CollectorPool(process_of(settings("--store", "memory:///", "--set", "databases=db,other")))
    async with running(pool):
        await until(lambda: "db" in pool.collectors and pool.collectors["db"].states[Task.WAL].last_error is not None)
        assert "keeps its WAL in ftp://logs" in str(pool.collectors["db"].states[Task.WAL].last_error)
        await until(lambda: pool.collectors["db"].states[Task.COMPACTED].last_success_ms is not None)


async def test_databases_that_come_later_are_collected() -> None:
    """A named database that does not exist yet, and one that a listing finds."""
    await make("there")
    pool = CollectorPool(
        process_of(settings("--store", "memory:///", "--set", "databases=there,late", "--set", "databases_below=t"))
    )
    async with running(pool):
        await until(lambda: "late" in pool.waiting and "there" in pool.collectors)
        assert "no manifest below late" in pool.waiting["late"]
        await make("late")
        await make("t/found")
        for path in ("late", "t/found"):
            await until(lambda path=path: len(keys("memory:///", f"{path}/manifest/")) == 1)  # type: ignore[misc]
        assert not pool.waiting


async def test_a_failed_listing_ends_no_collector() -> None:
    await make("t/a")
    env = Env.system()
    faulty = FaultyStore(open_store("memory:///"), env.rng)
    faulty.add(Rule(fault=Fault.BEFORE, op="list", times=2))
    pool = CollectorPool(process_of(settings("--store", "memory:///", "--set", "databases_below=t"), faulty))
    async with running(pool):
        await until(lambda: len(keys("memory:///", "t/a/manifest/")) == 1)


async def test_a_reload_reaches_databases_that_are_found_later() -> None:
    argv = ("--store", "memory:///", "--set", "databases_below=t")
    pool = CollectorPool(process_of(settings(*argv)))
    async with running(pool):
        pool.reload(settings(*argv, "--set", "delete_concurrency=3"))
        await make("t/found")
        await until(lambda: "t/found" in pool.collectors)
        assert pool.collectors["t/found"].options.delete_concurrency == 3


async def test_a_task_that_a_reload_turns_off_rests() -> None:
    """It uses no CPU, and continues when it is turned on again."""
    await make("db")
    argv = ("--url", "memory:///db")
    pool = CollectorPool(process_of(settings(*argv)))
    async with running(pool):
        await until(lambda: len(keys("memory:///", "db/manifest/")) == 1)
        collector = pool.collectors["db"]
        passes = 0
        sweep = collector.sweep

        async def counting(task: Task) -> None:
            nonlocal passes
            passes += task is Task.MANIFEST
            await sweep(task)

        collector.sweep = counting  # type: ignore[method-assign, assignment]
        state = collector.states[Task.MANIFEST]
        await until(lambda: passes > 1 and not state.is_running)
        before = passes
        pool.reload(settings(*argv, "--set", "garbage_collector_options.manifest_options=off"))
        await until(lambda: passes > before)
        for _ in range(500):
            await anyio.lowlevel.checkpoint()
        assert passes == before + 1, "the wait that had begun was its last one"
        before = passes
        pool.reload(settings(*argv))
        await until(lambda: passes > before)


@pytest.mark.parametrize(
    ("value", "message"),
    [('{ "a/../b" = "s3://x" }', "wal_stores"), ('{ a = "x" }', "wal_stores: a"), ("a", "name=value")],
)
def test_wal_stores_that_cannot_be_meant(value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings("--store", "memory:///", "--set", f"wal_stores={value}")


def test_wal_stores_are_read_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_GC__WAL_STORES", "t/a=s3://x, b=file:///logs")
    stores = settings("--store", "memory:///").wal_stores
    assert {path: url.get_secret_value() for path, url in stores.items()} == {"t/a": "s3://x", "b": "file:///logs"}


async def test_once_is_one_pass_over_each() -> None:
    """A missing or failing database, named or found, prevents no other pass and fails the run."""
    for path in ("a", "b", "t/c"):
        await make(path)
    argv = ("--once", "--store", "memory:///", "--set", "databases=a,absent,b", "--set", "databases_below=t")
    pool = CollectorPool(process_of(settings(*argv)))
    with pytest.raises(LatestRecordMissing, match="no manifest below absent"):
        await pool.run_once()
    for path in ("a", "b", "t/c"):
        assert len(keys("memory:///", f"{path}/manifest/")) == 1
    assert not pool.collectors
    await make("b")
    await open_store("memory:///").put(f"a/manifest/{99:020}.manifest", b"damaged")
    with pytest.raises(CorruptionError):
        await pool.run_once()
    assert len(keys("memory:///", "b/manifest/")) == 1
