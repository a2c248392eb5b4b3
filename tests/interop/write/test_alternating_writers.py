"""Shale and SlateDB alternate on one live directory: each writes, compacts and reads all rows.

Ten rounds.  In even ones Shale writes, in odd ones SlateDB; both compactors meet what either side has written.  Every
round leaves L0s, rows that are only in the WAL and another compression, and the next opener must find every row
of the model.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.policies.time_window import TimeWindow
from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.connect import open_store
from shale.types import MANIFEST_VERSION, ManifestVersion
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.interop.slatedb_databases import Shape, flush, flush_wal, open_folder, opened, put_all, scanned, until

ROUNDS = 10
FLUSHES = 3
KEYS = 3_000
CODECS = ("none", "snappy", "zlib", "lz4", "zstd")
SLATE_CODECS = (None, "Snappy", "Zlib", "Lz4", "Zstd")
EAGER = {"min_compaction_sources": 2, "max_compaction_sources": 8}

Model = dict[bytes, bytes]


def some_rows(rng: random.Random, number: int) -> list[tuple[bytes, bytes | None]]:
    """Return the writes of one batch: mostly values, some deletions, each key once."""
    keys = rng.sample(range(KEYS), 800)
    return [
        (b"key/%06d" % key, None if rng.random() < 0.1 else b"%d:" % number + rng.randbytes(rng.randrange(120)))
        for key in keys
    ]


def remember(model: Model, rows: list[tuple[bytes, bytes | None]]) -> None:
    for key, value in rows:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


async def shale_writes(
    folder: Path, model: Model, rng: random.Random, number: int, version: ManifestVersion = MANIFEST_VERSION
) -> None:
    async with shale.Db.open(
        f"file://{folder}/db",
        compression=CODECS[number // 2 % 5],
        min_filter_keys=100,
        manifest_write_version=version,
    ) as db:
        assert {row.key: row.value async for row in db.scan()} == model
        some_keys = rng.sample(range(KEYS), 200)
        found = await db.get_many([b"key/%06d" % key for key in some_keys])
        assert found == [model.get(b"key/%06d" % key) for key in some_keys]
        for part in range(FLUSHES + 1):
            rows = some_rows(rng, number)
            async with db.batch() as batch:
                for key, value in rows:
                    batch.delete(key) if value is None else batch.put(key, value)
            remember(model, rows)
            await db.flush("memtable" if part < FLUSHES else "wal")
        await db.close(flush="wal")


async def slate_writes(store: Any, model: Model, rng: random.Random, number: int) -> None:
    shape = Shape(settings={"compression_codec": SLATE_CODECS[number // 2 % 5], "min_filter_keys": 100})
    async with opened(store, "db", shape) as db:
        assert {row[0]: row[1] for row in await scanned(db)} == model
        for key in rng.sample(range(KEYS), 200):
            name = b"key/%06d" % key
            found = await db.get(name)
            assert (None if found is None else bytes(found)) == model.get(name)
        for part in range(FLUSHES + 1):
            rows = some_rows(rng, number)
            await put_all(db, rows)
            remember(model, rows)
            await (flush(db) if part < FLUSHES else flush_wal(db))


async def l0_count(folder: Path) -> int:
    manifests = ManifestStore(open_store(f"file://{folder}"), "db", Env.system())
    latest = await manifests.try_read_latest()
    assert latest is not None
    return len(latest.value.tree.l0)


@asynccontextmanager
async def shale_compactor(
    folder: Path, policy: CompactionScheduler, version: ManifestVersion = MANIFEST_VERSION
) -> AsyncIterator[None]:
    options = CompactorOptions(
        protocol=ProtocolOptions(component="compactor", manifest_write_version=version),
        coordinator=CoordinatorOptions(poll_interval_s=0.05, scheduler=policy),
        worker=WorkerOptions(compactions_poll_interval_s=0.05),
        executor=ExecutorOptions(max_sst_size_bytes=20_000),
        take_over=True,
    )
    compactor = Compactor(open_store(f"file://{folder}"), "db", Env.system(), options)
    await compactor.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def slate_compactor(store: Any) -> AsyncIterator[None]:
    """Run SlateDB's coordinator, which is part of its ``Db`` and makes it the writer."""
    eager = {name: str(value) for name, value in EAGER.items()}
    settings = json.loads(slate.Settings.default().to_json_string())["compactor_options"]
    settings |= {"poll_interval": "50ms", "commit_compacted_interval": "50ms", "scheduler_options": eager}
    settings["worker"] |= {"compactions_poll_interval": "50ms", "max_sst_size": 20_000}
    async with opened(store, "db", Shape(settings={"compactor_options": settings})):
        yield


async def take_turns(
    folder: Path, policy: CompactionScheduler, rounds: int, version: ManifestVersion = MANIFEST_VERSION
) -> None:
    rng, model = random.Random(1), Model()
    store = open_folder(folder)
    for number in range(rounds):
        ours = number % 2 == 0
        await (shale_writes(folder, model, rng, number, version) if ours else slate_writes(store, model, rng, number))
        # The compactor of the other side meets what this side has just written, in every second round.
        async with shale_compactor(folder, policy, version) if number % 4 in (0, 3) else slate_compactor(store):

            async def few_l0() -> bool:
                return await l0_count(folder) < EAGER["min_compaction_sources"]

            await until(few_l0)
    async with shale.DbReader.open(f"file://{folder}/db") as reader:
        assert {row.key: row.value async for row in reader.scan()} == model
    async with opened(store, "db", Shape()) as db:
        assert {row[0]: row[1] for row in await scanned(db)} == model


@pytest.mark.slow
def test_ten_turns_on_one_directory(tmp_path: Path) -> None:
    asyncio.run(take_turns(tmp_path, SizeTiered(**EAGER), ROUNDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Leveled(**EAGER, level_base_bytes=20_000, level_size_multiplier=2.0), id="leveled"),
        pytest.param(TimeWindow(**EAGER, window_s=60.0, default_ttl_s=60.0), id="time windows: run ids are seconds"),
    ],
)
def test_slatedb_reads_and_compacts_what_our_own_policies_leave(tmp_path: Path, policy: CompactionScheduler) -> None:
    asyncio.run(take_turns(tmp_path, policy, 4))


@pytest.mark.slow
def test_in_phase_1_of_an_upgrade_both_versions_of_manifests_follow_each_other(tmp_path: Path) -> None:
    """Shale writes version 1, SlateDB version 2; each compacts what the other has written."""
    asyncio.run(take_turns(tmp_path, SizeTiered(**EAGER), 8, version=1))
    files = [file.read_bytes() for file in sorted((tmp_path / "db" / "manifest").glob("*.manifest"))]
    assert {data[:2] for data in files} == {b"\x00\x01", b"\x00\x02"}
    # The watermark stays in the versions that have no L0 left, or compacted L0s would come back.
    empty = [decode_manifest(data).tree for data in files if data[1] == 1]
    empty = [tree for tree in empty if tree.compacted and not tree.l0]
    assert empty
    assert all(tree.last_compacted_l0_sst_view_id is not None for tree in empty)
