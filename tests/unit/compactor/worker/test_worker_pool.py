"""Several databases in one worker process: those that come later, go, or fail, and the limits that all share."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import anyio
import pytest

import shale
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale.service.process import Process
from shale.store.connect import connect, open_store
from shale.store.memory import MemoryStore
from shale.types import CompactionStatus
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.worker.settings import WorkerSettings
from shale_compactor.worker.worker_pool import WorkerPool
from tests.unit.service.processes import make_process

pytestmark = pytest.mark.anyio
L0S = 4
QUICK = ("databases_interval=20ms", "compactor_options.worker.compactions_poll_interval=20ms")
COORDINATOR = CoordinatorOptions(poll_interval_s=0.02, commit_compacted_interval_s=0.02)
GATE = Event()
_S = CompactionStatus
MANIFEST = "manifest/{:020}.manifest"


class Held(shale.CompactionFilter):
    """Keeps every row, once the gate is open."""

    def filter(self, batch: shale.RowBatch) -> shale.Decisions:
        del batch
        assert GATE.wait(60)
        return shale.Decisions()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setattr("shale.store.connect.memory_stores", {})
    GATE.clear()


def settings(*argv: str) -> WorkerSettings:
    return load_settings(
        WorkerSettings, ["--store=memory:///", *(f"--set={text}" for text in (*QUICK, *argv))]
    ).settings


def process_of(chosen: WorkerSettings) -> Process[WorkerSettings]:
    env, location = Env.system(), chosen.database.location()
    return make_process(chosen, "worker", env=env, store=connect(location.store_url, env), location=location)


def pool_of(*argv: str) -> WorkerPool:
    return WorkerPool(process_of(settings(*argv)))


def exposed(pool: WorkerPool, name: str, **labels: str) -> float | None:
    return pool.process.metrics.registry.get_sample_value(name, labels)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - what is waited for is in a store or in another task
            await anyio.sleep(0.01)


async def make(path: str) -> None:
    """Create a database that has something to compact."""
    async with shale.Db.open(path, store="memory:///", compactor=False, gc=False) as db:
        for number in range(L0S):
            await db.put(b"k%d" % number, b"%d" % number)
            await db.flush("memtable")


async def destroy(path: str) -> None:
    """Delete every object of a database, as the gc does at the end."""
    store = open_store("memory:///")
    assert isinstance(store, MemoryStore)
    for key in [key for key in store.objects if key.startswith(f"{path}/")]:
        await store.delete(key)


async def damage(path: str) -> None:
    await open_store("memory:///").put(f"{path}/{MANIFEST.format(99)}", b"damaged")


async def compacted(path: str) -> bool:
    latest = await ManifestStore(open_store("memory:///"), path, Env.system()).read_latest()
    return any(tree.compacted for _, tree in latest.value.trees())


async def wait_compacted(path: str) -> None:
    with anyio.fail_after(60):
        while not await compacted(path):  # noqa: ASYNC110 - as above
            await anyio.sleep(0.02)


async def states(path: str) -> list[CompactionStatus]:
    latest = await CompactionsStore(open_store("memory:///"), path, Env.system()).try_read_latest()
    return [] if latest is None else [entry.status for entry in latest.value.entries]


async def wait_for_states(wanted: list[CompactionStatus], *paths: str) -> None:
    with anyio.fail_after(60):
        while sorted([status for path in paths for status in await states(path)]) != wanted:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.02)


@asynccontextmanager
async def running(pool: WorkerPool, *coordinated: str) -> AsyncIterator[anyio.abc.TaskGroup]:
    """Run the workers, and coordinators of these databases."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        for path in coordinated:
            await coordinate(tasks, path)
        yield tasks
        tasks.cancel_scope.cancel()


async def coordinate(tasks: anyio.abc.TaskGroup, path: str) -> None:
    options = CompactorOptions(coordinator=COORDINATOR, embedded_worker=False, take_over=True)
    compactor = Compactor(open_store("memory:///"), path, Env.system(), options)
    await compactor.start()
    tasks.start_soon(compactor.run)


async def test_each_database_is_compacted_under_its_own_label() -> None:
    for path in ("a", "shop/b"):
        await make(path)
    pool = pool_of("databases=a", "databases_below=shop", 'database_aliases={ "shop/b" = "b" }')
    async with running(pool, "a", "shop/b"):
        await wait_compacted("a")
        await wait_compacted("shop/b")
        assert set(pool.workers) == {"a", "shop/b"}
        assert pool.check().message == "ok"
        for label in ("a", "b"):
            assert exposed(pool, "slatedb_compactor_jobs_claimed_total", db=label) == 1
            assert exposed(pool, "slatedb_compactor_worker_up", db=label) == 1
    assert not pool.workers
    assert exposed(pool, "slatedb_compactor_worker_up", db="a") == 0


async def test_a_broken_database_does_not_stop_the_others() -> None:
    for path in ("good", "broken"):
        await make(path)
    await damage("broken")
    pool = pool_of("databases=broken,good")
    async with running(pool, "good"):
        await wait_compacted("good")
        await until(lambda: "broken" in pool.failed)
        assert "broken/manifest/" in pool.status()["failed"]["broken"]
        verdict = pool.check()
        assert (verdict.ok, verdict.degraded) == (True, True)
        assert verdict.message == f"broken: {pool.failed['broken']}"
        assert exposed(pool, "slatedb_compactor_worker_up", db="broken") == 0
        assert exposed(pool, "slatedb_corruption_total", db="broken", resource="manifest")
        await open_store("memory:///").delete(f"broken/{MANIFEST.format(99)}")
        await until(lambda: "broken" in pool.workers)
        assert (pool.failed, pool.check().message) == ({}, "ok")


async def test_a_process_that_serves_no_database_is_not_ready() -> None:
    for path in ("a", "b"):
        await make(path)
        await damage(path)
    pool = pool_of("databases_below=")
    async with running(pool):
        await until(lambda: len(pool.failed) == 2)
        assert not pool.check().ok


async def test_databases_come_later_and_go() -> None:
    """A named one is waited for; one that was discovered is forgotten, and found again."""
    pool = pool_of("databases=named", "databases_below=below")
    async with running(pool) as tasks:
        await until(lambda: "no manifest" in pool.waiting.get("named", ""))
        assert pool.check().message == "ok"
        for path in ("named", "below/found"):
            await make(path)
            await until(lambda path=path: path in pool.workers)  # type: ignore[misc]
        for path in ("named", "below/found"):
            await destroy(path)
            await until(lambda path=path: path not in pool.workers)  # type: ignore[misc]
        await until(lambda: set(pool.waiting) == {"named"} and not pool.failed)
        await make("below/found")
        await coordinate(tasks, "below/found")
        await wait_compacted("below/found")


async def test_all_databases_share_the_slots() -> None:
    """With one slot, the jobs of three databases run one after the other."""
    for path in ("a", "b", "c"):
        await make(path)
    pool = pool_of(
        "databases=a,b,c",
        "compactor_options.worker.max_concurrent_compactions=1",
        f'compactor_options.worker.compaction_filters=["{__name__}:Held"]',
    )

    def jobs() -> int:
        return sum(len(worker.jobs) for worker in pool.workers.values())

    async with running(pool, "a", "b", "c"):
        await until(lambda: jobs() == 1)
        await wait_for_states([_S.RUNNING, _S.SCHEDULED, _S.SCHEDULED], "a", "b", "c")
        polled = {root: worker.last_poll_s for root, worker in pool.workers.items()}
        await until(lambda: all(worker.last_poll_s != polled[root] for root, worker in pool.workers.items()))
        assert jobs() == 1
        GATE.set()
        for path in ("a", "b", "c"):
            await wait_compacted(path)


async def test_a_stop_releases_the_jobs_of_all_databases() -> None:
    for path in ("a", "b"):
        await make(path)
    pool = pool_of("databases=a,b", f'compactor_options.worker.compaction_filters=["{__name__}:Held"]')
    async with running(pool, "a", "b") as tasks:
        await until(lambda: len(pool.workers) == 2 and all(worker.jobs for worker in pool.workers.values()))
        GATE.set()
        tasks.cancel_scope.cancel()
    for path in ("a", "b"):
        assert await states(path) in ([CompactionStatus.SCHEDULED], [CompactionStatus.COMPACTED])


async def test_a_reload_reaches_every_worker() -> None:
    await make("a")
    pool = pool_of("databases=a,late")
    async with running(pool):
        await until(lambda: "a" in pool.workers)
        pool.reload(settings("databases=a,late", "compactor_options.worker.max_concurrent_compactions=9"))
        await make("late")
        await until(lambda: "late" in pool.workers)
        assert {worker.options.max_concurrent_compactions for worker in pool.workers.values()} == {9}
        assert pool.status()["max_concurrent_compactions"] == 9


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("databases=a/../b",), "database"),
        (("databases=a", "spark.executor=spark"), "spark.executor = spark serves one database"),
        (("database.path=a", "databases=b", 'database_aliases={ a = "x" }'), "database.alias"),
    ],
)
def test_settings_that_cannot_be_meant(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings(*argv)


def test_one_database_is_served_as_before() -> None:
    assert settings("database.path=a").serves_one
    assert settings("database.path=a", "databases=a").serves_one
    assert not settings("databases=a").serves_one
    assert not settings("database.path=a", "databases_below=b").serves_one
