"""One part of the suite in a process of its own: ``python -m tests.bench.scale.measure PART SSTS SEGMENTS MANIFEST``.

It prints a JSON object of numbers: milliseconds of the wall clock and of CPU without those of making contents,
requests, and bytes of memory.
"""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import shale
from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.compaction.policies.size_tiered import SizeTiered
from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.format.names import manifest_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.sst.verify.sst import VerifyDepth
from shale.store.memory import MemoryStore
from shale.types import Compactions
from shale_cli.commands.db.info import db_info_json, read_db_info
from shale_compactor.planning.round import Policy, plan_commit_round
from tests.bench.scale.database import EXTRACTOR, ScaleShape, extents_of, key_of
from tests.bench.scale.store import SimulatedStore

ROOT = "db"
_DRY = TaskOptions(dry_run=True)
_OPTIONS = GcOptions(manifest=_DRY, wal=_DRY, compacted=_DRY, compactions=_DRY, detach=_DRY)
_UPDATES = 5
_VERIFIED_SEGMENTS_MAX = 0


class Measures:
    """The numbers of one process."""

    def __init__(self, shape: ScaleShape, store: SimulatedStore) -> None:
        self.shape = shape
        self.store = store
        self.numbers: dict[str, float] = {}

    async def take(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do work once; the time in which the store makes contents does not count."""
        self.store.reset()
        wall, cpu = perf_counter(), process_time()
        result = await work()
        wall, cpu = perf_counter() - wall, process_time() - cpu
        making_wall, making_cpu = self.store.making
        self.numbers[f"{name}, wall"] = 1000 * max(0.0, wall - making_wall)
        self.numbers[f"{name}, cpu"] = 1000 * max(0.0, cpu - making_cpu)
        self.numbers[f"{name}, requests"] = sum(self.store.requests.values())
        return result


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


async def measure_writer(all_: Measures) -> None:
    """Measure open, first get and scan, updates of the manifest, and memory."""
    await _load_code()
    before = resident_bytes()
    options: dict[str, Any] = {"l0_max_ssts": 1 << 20, "l0_max_ssts_per_key": 1 << 20, "manifest_poll_interval": "1h"}
    if all_.shape.segments:
        options["segment_extractor"] = EXTRACTOR
    db = await all_.take("open writer", lambda: shale.Db.open(ROOT, store=all_.store, **options).__aenter__())
    after = resident_bytes()
    ssts = all_.shape.ssts + all_.shape.l0_count
    all_.numbers["resident per SST, bytes"] = max(0, after - before) / ssts
    all_.numbers["resident before open, MB"] = before / 1e6
    all_.numbers["resident after open, MB"] = after / 1e6
    await _read(all_, db)
    all_.numbers["resident after a scan, MB"] = resident_bytes() / 1e6

    async def update() -> None:
        await db.put(_first_key(all_), b"x")
        await db.flush("memtable")

    await update()
    found = []
    for _ in range(_UPDATES):
        await all_.take("manifest update", update)
        found.append({name: each for name, each in all_.numbers.items() if name.startswith("manifest update")})
    all_.numbers |= sorted(found, key=lambda each: each["manifest update, cpu"])[len(found) // 2]
    await db.close()


async def measure_reader(all_: Measures) -> None:
    """Measure opening a reader, which creates a checkpoint, and the first get and scan."""
    await _load_code()
    reader = await all_.take("open reader", lambda: shale.DbReader.open(ROOT, store=all_.store).__aenter__())
    await _read(all_, reader)
    await reader.close()


async def measure_tools(all_: Measures) -> None:
    """Measure planners, the collector, ``db info`` and a verification that reads no blocks."""
    store, env = all_.store, Env.system()
    held = store.objects[manifest_key(ROOT, 1)].data
    manifest = decode_manifest(held)

    async def plan() -> None:
        policy = Policy(scheduler=SizeTiered(), capacity=4, trivial_moves=True)
        plan_commit_round(manifest, Compactions(), policy, env.ids.ulid)

    for _ in range(2):  # the first round also imports what the second one uses
        collector = Collector(store, ROOT, env, _OPTIONS)
        await all_.take("plan compactions", plan)
        await all_.take("plan a pass of the gc", collector.run_once)
        await all_.take("db info", lambda: _info(store, env))
    if all_.shape.segments <= _VERIFIED_SEGMENTS_MAX:
        target = VerifyTarget(store=store, wal_store=None, root=ROOT, env=env)
        quick = VerifyOptions(depth=VerifyDepth.QUICK)
        report = await all_.take("verify without blocks", lambda: verify_database(target, quick))
        assert not report.findings, report.findings


PARTS = {"writer": measure_writer, "reader": measure_reader, "tools": measure_tools}


async def _read(all_: Measures, handle: Any) -> None:
    key = _first_key(all_)

    async def scan() -> None:
        rows = [row async for row in handle.scan(start=key, limit=10)]
        assert len(rows) == 10

    assert await all_.take("first get", lambda: handle.get(key))
    all_.numbers["resident after a get, MB"] = resident_bytes() / 1e6
    await all_.take("first scan of 10 rows", scan)


def _first_key(all_: Measures) -> bytes:
    """Return a key of the oldest run of the last tree."""
    extents = list(all_.store.extents.values())
    oldest = extents[-1] if all_.shape.segments else extents[all_.shape.ssts - 1]
    return key_of(oldest.number(1234))


async def _load_code() -> None:
    """Import what the first use of a database imports."""
    store = MemoryStore()
    async with shale.Db.open("x", store=store) as db:
        await db.put(b"k", b"v")
        await db.flush("memtable")
    async with shale.DbReader.open("x", store=store) as reader:
        assert await reader.get(b"k") == b"v"
        assert [row async for row in reader.scan(limit=1)]


async def _info(store: SimulatedStore, env: Env) -> None:
    @asynccontextmanager
    async def opened(_: Any = None) -> AsyncIterator[SimulatedStore]:
        yield store

    session: Any = SimpleNamespace(
        path=ROOT, env=env, location=SimpleNamespace(url=store.url), open_store=opened, open_wal_store=opened
    )
    assert json.dumps(db_info_json(await read_db_info(session)))


async def measure(part: str, shape: ScaleShape, manifest: bytes) -> dict[str, float]:
    """Return the numbers of one part."""
    store = SimulatedStore(Env.system().clock, ROOT, extents_of(shape))
    store.write(manifest_key(ROOT, 1), manifest)
    all_ = Measures(shape, store)
    await PARTS[part](all_)
    return all_.numbers


if __name__ == "__main__":
    _, name, ssts_, segments_, path = sys.argv
    of = ScaleShape(int(ssts_), int(segments_))
    print(json.dumps(asyncio.run(measure(name, of, Path(path).read_bytes()))))
