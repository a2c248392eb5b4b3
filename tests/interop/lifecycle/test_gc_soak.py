"""The collector without a min_age, in a loop, beside all processes of both libraries (docs/how-to/gc.md).

Two databases in one directory: Shale writes and compacts one, SlateDB the other.  Readers of both kinds scan both for
long, clones of both kinds are made and read.  A round writes the same number under all keys in one batch, so a scan
that returns two numbers, or misses a key, has met a deleted SST.
"""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.admin.admin import Admin
from shale.engine.write.batch import WriteBatch
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.protocol.wal_store import WalStore
from shale.store.connect import connect
from shale.telemetry.metrics import Metrics
from shale_compactor.compactor import Compactor, CompactorOptions
from tests.interop.compaction.harness import FAST, RUST_COMPACTS, WORKS, executor_options
from tests.interop.database_files import DatabaseFiles
from tests.interop.slatedb_databases import EVERYTHING, Shape, flush, open_folder, opened, put_all, until

SECONDS = float(os.environ.get("SHALE_GC_SOAK_S", "600"))
KEYS = [b"k%03d" % number for number in range(60)]
OURS, THEIRS = "ours", "theirs"
TASK = TaskOptions(interval_s=0.5, min_age_s=0.0)
EVERYTHING_AT_ONCE = GcOptions(**{task.value: TASK for task in Task if task is not Task.WAL_FENCE})
QUICK_READER: dict[str, Any] = {"manifest_poll_interval": 0.2, "checkpoint_lifetime": 15}
"""A lease that a machine with much to do can renew in time, and that ends many times in a long run."""
ROUNDS_TO_REST = 5
WITHOUT_GC: dict[str, object] = {"garbage_collector_options": None, "manifest_poll_interval": "50ms"}


@dataclass
class Soak:
    folder: Path
    seconds: float
    written: dict[str, int] = field(default_factory=lambda: {OURS: 0, THEIRS: 0})
    scans: dict[str, int] = field(default_factory=dict)
    clones: list[str] = field(default_factory=list)
    collected: dict[str, int] = field(default_factory=dict)
    left: dict[str, dict[str, int]] = field(default_factory=dict)
    is_over: bool = False

    def url(self, name: str) -> str:
        return f"file://{self.folder}/{name}"

    def check(self, who: str, rows: list[tuple[bytes, bytes]], at_least: int) -> None:
        assert [key for key, _ in rows] == KEYS, f"{who}: keys are missing"
        numbers = {int(value) for _, value in rows}
        assert len(numbers) == 1, f"{who}: rows of several rounds: {sorted(numbers)}"
        assert min(numbers) >= at_least, f"{who}: {numbers} where {at_least} was durable"
        self.scans[who] = self.scans.get(who, 0) + 1

    async def write_ours(self) -> None:
        async with shale.Db.open(self.url(OURS), flush_interval=0, manifest_poll_interval="50ms") as db:
            while not self.is_over:
                number = self.written[OURS] + 1
                batch = WriteBatch()
                for key in KEYS:
                    batch.put(key, b"%d" % number)
                await (await db.write(batch)).durable()
                self.written[OURS] = number
                await db.flush("memtable")
                await anyio.sleep(0.05)

    async def write_theirs(self) -> None:
        shape = Shape(settings={**WITHOUT_GC, "compactor_options": {**RUST_COMPACTS, "checkpoint_lifetime": "20s"}})
        async with opened(open_folder(self.folder), THEIRS, shape) as db:
            while not self.is_over:
                number = self.written[THEIRS] + 1
                await put_all(db, [(key, b"%d" % number) for key in KEYS])
                await flush(db)
                self.written[THEIRS] = number
                await anyio.sleep(0.05)

    async def compact_ours(self) -> None:
        options = CompactorOptions(coordinator=FAST, worker=WORKS, executor=executor_options(), take_over=True)
        compactor = Compactor(connect(f"file://{self.folder}", Env.system()), OURS, Env.system(), options)
        await compactor.start()
        await compactor.run()

    async def collect(self, name: str) -> None:
        env = Env.system()
        metrics = Metrics()
        collector = Collector(connect(f"file://{self.folder}", env), name, env, EVERYTHING_AT_ONCE, metrics)
        try:
            await collector.run()
        finally:
            for task in Task:
                labels = {"db": "", "resource": task.value}
                gone = metrics.registry.get_sample_value("slatedb_gc_deleted_objects_total", labels) or 0
                self.collected[task] = self.collected.get(task, 0) + int(gone)

    async def read_ours(self, name: str) -> None:
        """Run a managed reader whose scan takes a second."""
        while not self.is_over:
            at_least = self.written[name]
            async with shale.DbReader.open(self.url(name), **QUICK_READER) as reader:
                for _ in range(4):
                    rows = []
                    async for row in reader.scan():
                        rows.append((bytes(row.key), bytes(row.value)))
                        if len(rows) % 10 == 0:
                            await anyio.sleep(0.15)
                    self.check(f"Shale reads {name}", rows, at_least)

    async def read_theirs(self, name: str) -> None:
        """Run SlateDB's reader with a scan that takes a second."""
        store = open_folder(self.folder)
        while not self.is_over:
            at_least = self.written[name]
            reader = await slate.DbReaderBuilder(name, store).build()
            for _ in range(3):
                iterator = await reader.scan(EVERYTHING)
                rows: list[tuple[bytes, bytes]] = []
                while (row := await iterator.next()) is not None:
                    rows.append((bytes(row.key), bytes(row.value)))
                    if len(rows) % 10 == 0:
                        await anyio.sleep(0.15)
                self.check(f"SlateDB reads {name}", rows, at_least)
            await reader.shutdown()

    async def clone_and_read(self, tasks: Any) -> None:
        """Clone both databases with both libraries while SlateDB's collectors run."""
        number = 0
        while not self.is_over:
            await anyio.sleep(self.seconds / 3)
            for parent in (OURS, THEIRS):
                if self.is_over:
                    return
                number += 1
                name = f"clone-{number}"
                at_least = self.written[parent] - 1
                if number % 4 in (1, 0):
                    async with Admin(self.url(name)) as admin:
                        await admin.clones.create(parent, allow_wal_gap=True)  # what the other library has just written
                else:
                    spec = slate.CloneSourceSpec(path=parent, checkpoint=None, projection_range=None)
                    builder = slate.AdminBuilder(name, open_folder(self.folder)).build()
                    await builder.create_clone_builder_from_source(spec).build()
                self.clones.append(name)
                self.written[name] = max(at_least, 0)
                tasks.start_soon(self.collect, name)
                async with shale.DbReader.open(self.url(name), **QUICK_READER) as reader:
                    rows = [(bytes(row.key), bytes(row.value)) async for row in reader.scan()]
                self.check(f"a clone of {parent}", rows, 0)

    async def has_begun(self) -> bool:
        return all(self.written.values())

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as work:
                work.start_soon(self.write_ours)
                work.start_soon(self.write_theirs)
                await until(self.has_begun, seconds=300)
                for name in (OURS, THEIRS):
                    tasks.start_soon(self.collect, name)
                    work.start_soon(self.read_ours, name)
                    work.start_soon(self.read_theirs, name)
                tasks.start_soon(self.compact_ours)
                work.start_soon(self.clone_and_read, tasks)
                await anyio.sleep(self.seconds)
                self.is_over = True
                work.cancel_scope.deadline = anyio.current_time() + 60
            # What is left works for ever.
            tasks.cancel_scope.cancel()

    async def at_rest(self) -> None:
        """Unreferenced objects are gone, except fences and objects younger than the newest L0 or compaction."""
        for name in (OURS, THEIRS, *self.clones):
            env = Env.system()
            store = connect(f"file://{self.folder}", env)
            collector = Collector(store, name, env, EVERYTHING_AT_ONCE)
            for _ in range(ROUNDS_TO_REST):  # a lease that ends meanwhile leaves another version behind
                await collector.run_once()
                plan = await collector.plan()
                if not plan.objects:
                    break
            assert not plan.objects, f"{name}: {[each.key for each in plan.objects]}"
            self.left[name] = files_below(self.folder / name)
            files = DatabaseFiles(self.folder, name)
            latest = files.latest()
            pinned = {checkpoint.manifest_id for checkpoint in latest.checkpoints}
            assert set(files.manifests()) == {*pinned, max(files.manifests())}
            leftover = [file.id for file in await WalStore(store, name).list() if not file.is_fence]
            assert all(id_ >= latest.replay_after_wal_id or pinned for id_ in leftover), f"{name}: {leftover}"


def files_below(folder: Path) -> dict[str, int]:
    """Return the objects by kind, without staging files of a directory."""
    kinds = {each.name: [file for file in each.iterdir() if "#" not in file.name] for each in folder.iterdir()}
    return {kind: len(files) for kind, files in sorted(kinds.items())}


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(8.0, id="short"),
        pytest.param(SECONDS, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(SECONDS + 300)]),
    ],
)
def test_no_process_misses_anything(tmp_path: Path, seconds: float) -> None:
    async def scenario() -> Soak:
        soak = Soak(tmp_path, seconds)
        await soak.run()
        await soak.at_rest()
        return soak

    soak = asyncio.run(scenario())
    print(f"rounds {soak.written}, scans {soak.scans}, {len(soak.clones)} clones, collected {soak.collected}")
    print(f"at rest {soak.left}")
    assert soak.clones
    assert all(soak.scans.get(f"{who} {name}") for who in ("Shale reads", "SlateDB reads") for name in (OURS, THEIRS))
