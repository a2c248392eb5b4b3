"""Several databases in one collector process: their WALs, those that come later, and what must not end the others."""

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
from shale.garbage.options import Task
from shale.service.admin import AdminApp
from shale.service.health import Health
from shale.service.process import Process
from shale.service.settings import SettingsError, load
from shale.store.connect import connect, open_store
from shale.store.memory import MemoryStore
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Manifest
from shale_gc.fleet import Fleet
from shale_gc.settings import GcSettings

pytestmark = pytest.mark.anyio
TASKS = ("manifest", "wal", "compacted", "compactions")
QUICK = [f'garbage_collector_options.{task}_options={{interval = "20ms", min_age = "0s"}}' for task in TASKS]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setattr("shale.store.connect._memory_stores", {})


def settings(*argv: str) -> GcSettings:
    return load(GcSettings, [*(f"--set={text}" for text in (*QUICK, "databases_interval=20ms")), *argv]).settings


def process_of(chosen: GcSettings, store: Any = None) -> Process[GcSettings]:
    env, metrics = Env.system(), Metrics()
    health = Health(env.clock, metrics)
    location, wal_url = chosen.database.location(), chosen.database.wal_store_url()
    return Process(
        settings=chosen,
        env=env,
        metrics=metrics,
        health=health,
        admin=AdminApp(health, metrics, None),
        admin_port=0,
        store=store if store is not None else connect(location.store_url, env),
        location=location,
        log=get_logger("gc"),
        wal_store=None if wal_url is None else connect(wal_url, env),
    )


@asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        yield
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while True:
            if condition():
                return
            await anyio.sleep(0.01)


def keys(url: str, below: str = "") -> list[str]:
    store = open_store(url)
    assert isinstance(store, MemoryStore)
    return [key for key in store._objects if key.startswith(below)]


async def make(path: str, wal: str | None = None) -> None:
    """A database with garbage: old manifests, and WAL files that nobody replays."""
    async with shale.Db.open(path, store="memory:///", wal_store=wal) as db:
        for number in range(3):
            await db.put(b"k", b"%d" % number)
            await db.flush("memtable")


def rows_in(url: str, path: str) -> int:
    """WAL files with rows."""
    store = open_store(url)
    assert isinstance(store, MemoryStore)
    return sum(1 for key, found in store._objects.items() if key.startswith(f"{path}/wal/") and len(found.data))


async def test_each_database_has_the_wal_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the settings, by its manifest, by default, and with the rest."""

    def decode(data: bytes, path: str) -> Manifest:
        uri = "memory://told/" if path.startswith("told/") else None
        return replace(decode_manifest(bytes(data)), wal_object_store_uri=uri)

    places = {"named": "memory://named/", "told": "memory://told/", "other": "memory://other/", "here": "memory:///"}
    for path, wal in places.items():
        await make(path, wal if path != "here" else None)
        assert rows_in(wal, path) >= 3
    monkeypatch.setattr("shale.protocol.manifest_store._DECODE", decode)
    named = '{ named = "memory://named/", here = "memory:///" }'
    fleet = Fleet(
        process_of(
            settings(
                "--store", "memory:///", "--set", "databases=named,told,other,here", "--wal-store", "memory://other/",
                "--set", f"wal_stores={named}",
            )
        )
    )  # fmt: skip
    async with running(fleet):
        await until(lambda: all(rows_in(wal, path) <= 1 for path, wal in places.items()))
        assert not any(state.last_error for _, collector in fleet for state in collector.states.values())


async def test_a_wal_that_nobody_named_is_an_error_and_not_an_empty_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    await make("db", "memory://logs/")

    def decode(data: bytes, path: str) -> Manifest:
        del path
        return replace(decode_manifest(bytes(data)), wal_object_store_uri="ftp://logs")

    monkeypatch.setattr("shale.protocol.manifest_store._DECODE", decode)
    fleet = Fleet(process_of(settings("--store", "memory:///", "--set", "databases=db,other")))
    async with running(fleet):
        await until(lambda: "db" in fleet.collectors and fleet.collectors["db"].states[Task.WAL].last_error is not None)
        assert "keeps its WAL in ftp://logs" in str(fleet.collectors["db"].states[Task.WAL].last_error)
        await until(lambda: fleet.collectors["db"].states[Task.COMPACTED].last_success_ms is not None)


async def test_databases_that_come_later_are_collected() -> None:
    """A named one, which is waited for, and one that is found."""
    await make("there")
    fleet = Fleet(
        process_of(settings("--store", "memory:///", "--set", "databases=there,late", "--set", "databases_below=t"))
    )
    async with running(fleet):
        await until(lambda: "late" in fleet.waiting and "there" in fleet.collectors)
        assert "no manifest below late" in fleet.waiting["late"]
        await make("late")
        await make("t/found")
        for path in ("late", "t/found"):
            await until(lambda path=path: len(keys("memory:///", f"{path}/manifest/")) == 1)  # type: ignore[misc]
        assert not fleet.waiting


async def test_a_listing_that_fails_ends_nobody() -> None:
    await make("t/a")
    env = Env.system()
    faulty = FaultyStore(open_store("memory:///"), env.rng)
    faulty.add(Rule(fault=Fault.BEFORE, op="list", times=2))
    fleet = Fleet(process_of(settings("--store", "memory:///", "--set", "databases_below=t"), faulty))
    async with running(fleet):
        await until(lambda: len(keys("memory:///", "t/a/manifest/")) == 1)


async def test_a_reload_reaches_databases_that_are_found_later() -> None:
    argv = ("--store", "memory:///", "--set", "databases_below=t")
    fleet = Fleet(process_of(settings(*argv)))
    async with running(fleet):
        fleet.take_over(settings(*argv, "--set", "delete_concurrency=3"))
        await make("t/found")
        await until(lambda: "t/found" in fleet.collectors)
        assert fleet.collectors["t/found"].options.delete_concurrency == 3


async def test_a_task_that_a_reload_turns_off_rests() -> None:
    """It does not spin, and goes on when it is turned on again."""
    await make("db")
    argv = ("--url", "memory:///db")
    fleet = Fleet(process_of(settings(*argv)))
    async with running(fleet):
        await until(lambda: len(keys("memory:///", "db/manifest/")) == 1)
        collector = fleet.collectors["db"]
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
        fleet.take_over(settings(*argv, "--set", "garbage_collector_options.manifest_options=off"))
        await until(lambda: passes > before)
        for _ in range(500):
            await anyio.lowlevel.checkpoint()
        assert passes == before + 1, "the wait that had begun was its last one"
        before = passes
        fleet.take_over(settings(*argv))
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
    assert settings("--store", "memory:///").wal_stores == {"t/a": "s3://x", "b": "file:///logs"}


async def test_once_is_one_pass_over_each() -> None:
    """Named or found; what is not there or fails keeps nobody from a pass, and is the end's error."""
    for path in ("a", "b", "t/c"):
        await make(path)
    argv = ("--once", "--store", "memory:///", "--set", "databases=a,absent,b", "--set", "databases_below=t")
    fleet = Fleet(process_of(settings(*argv)))
    with pytest.raises(LatestRecordMissing, match="no manifest below absent"):
        await fleet.run_once()
    for path in ("a", "b", "t/c"):
        assert len(keys("memory:///", f"{path}/manifest/")) == 1
    assert not fleet.collectors
    await make("b")
    await open_store("memory:///").put(f"a/manifest/{99:020}.manifest", b"damaged")
    with pytest.raises(CorruptionError):
        await fleet.run_once()
    assert len(keys("memory:///", "b/manifest/")) == 1
