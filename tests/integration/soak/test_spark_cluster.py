"""A compaction on a cluster whose worker and then driver are killed: it finishes, and repeats little work.

``SHALE_SOAK_SPARK_BYTES`` says how much is compacted; on the disk it is three times as much at the most.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import Sources
from shale.env import Env
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import connect
from shale.types import Compaction, CompactionStatus, RunId, Ulid
from tests.integration.daemons.daemon_process import Daemon, metric
from tests.integration.soak import spark_rows
from tests.integration.soak.spark_cluster import Cluster

BYTES = int(os.environ.get("SHALE_SOAK_SPARK_BYTES", str(1 << 30)))
SHARES = 1 + (spark_rows.LAYERS - 1) / spark_rows.STEP + 1 / spark_rows.LOADED_STEP
ROWS = int(BYTES / SHARES / spark_rows.ROW_BYTES)
REPEATED_MAX = 0.1
SLOW = {"compactor_options.worker.compaction_filters": '["tests.integration.soak.slow_filter:Slowly"]'}
"""Sixteen megabytes a second for each task: less than some gigabytes would be done before a kill."""
SLOW_BELOW = 3 << 30
LIMIT_S = 1800.0
ROOT = spark_rows.ROOT
QUICK = {
    "compactor_options.poll_interval": "200ms",
    "compactor_options.commit_compacted_interval": "100ms",
    "compactor_options.worker_heartbeat_timeout": "3s",
    "compactor_options.worker.heartbeat_interval": "1s",
    "compactor_options.worker.compactions_poll_interval": "200ms",
    "compactor_options.worker.persist_every_sst": "true",
    "compactor_options.worker.persist_interval": "100ms",
    "compactor_options.worker.max_sst_size": str(max(4 << 20, BYTES // 128)),
    "compactor_options.scheduler_options.min_compaction_sources": "10000",
    "compactor_options.scheduler_options.max_compaction_sources": "10000",
}
PROPERTIES = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}


@dataclass
class Harness:
    """The database and the processes on it."""

    folder: Path
    logs: Path
    master: str
    daemons: int = 0

    def start(self, module: str, settings: dict[str, str]) -> Daemon:
        self.daemons += 1
        options = [part for name, value in (QUICK | settings).items() for part in ("--set", f"{name}={value}")]
        url = f"file://{self.folder}/{ROOT}"
        return Daemon(module, "--url", url, *options, log=self.logs / f"daemon-{self.daemons}.log")

    def start_driver(self) -> Daemon:
        """`shale worker` on Spark, which is the driver."""
        table = ", ".join(f'"{name}" = "{value}"' for name, value in PROPERTIES.items())
        spark = {"spark.executor": "spark", "spark.master": self.master, "spark.conf": f"{{ {table} }}"}
        return self.start(
            "shale_compactor.worker", {**spark, "spark.ranges": "4", **(SLOW if BYTES < SLOW_BELOW else {})}
        )

    def ssts(self) -> dict[str, int]:
        """Return objects by name, with their sizes."""
        found = (self.folder / ROOT / "compacted").glob("*.sst")
        return {path.stem: path.stat().st_size for path in found}


async def submitted(harness: Harness) -> Ulid:
    """Submit one job over all sources."""
    env = Env.system()
    store = connect(f"file://{harness.folder}", env)
    tree = (await ManifestStore(store, ROOT, env).read_latest()).value.tree
    request = Sources(l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=(RunId(1),), destination=RunId(1))
    deadline = time.monotonic() + 60
    while await CompactionsStore(store, ROOT, env).try_read_latest() is None:
        assert time.monotonic() < deadline, "no coordinator"
        await asyncio.sleep(0.1)
    (info,) = await CompactionAdmin(store, ROOT, env).submit(request)
    await store.aclose()
    return info.id


async def stored(harness: Harness, job: Ulid) -> Compaction:
    env = Env.system()
    store = connect(f"file://{harness.folder}", env)
    entry = (await CompactionsStore(store, ROOT, env).read_latest()).value.get(job)
    await store.aclose()
    assert entry is not None
    return entry


async def named_ssts(harness: Harness) -> set[str]:
    """Return the SSTs that the manifest names."""
    env = Env.system()
    store = connect(f"file://{harness.folder}", env)
    manifest = (await ManifestStore(store, ROOT, env).read_latest()).value
    await store.aclose()
    return {str(sst_id) for sst_id in manifest.ssts()}


def input_bytes(driver: Daemon) -> int:
    """Return the bytes that tasks have read so far, from their reports."""
    _, text = driver.get("/metrics", port=driver.port("admin_port"))
    return int(metric(text, "slatedb_compaction_input_bytes_total"))


def share(entry: Compaction) -> float:
    """Return the share of the input that is merged, from the published progress."""
    done = [sst for sub in (entry.ctx.subcompactions if entry.ctx else ()) for sst in sub.output_ssts]
    return sum(sst.estimated_size_bytes for sst in done) / (ROWS * spark_rows.ROW_BYTES)


def until(harness: Harness, job: Ulid, is_so: Callable[[Compaction], bool]) -> Compaction:
    deadline = time.monotonic() + LIMIT_S
    while True:
        entry = asyncio.run(stored(harness, job))
        if is_so(entry):
            return entry
        assert time.monotonic() < deadline, entry.status
        assert not entry.status.is_finished, "before a kill"
        time.sleep(0.1)


@pytest.mark.soak
def test_a_killed_worker_and_a_killed_driver_cost_little(tmp_path: Path) -> None:
    """Each row exists once, and less than a tenth of the input is read twice."""
    # The driver's working directory and logs are apart from the database.
    folder, logs = tmp_path / "store", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    try:
        _run(folder, logs)
    finally:
        shutil.rmtree(folder)


def _run(folder: Path, logs: Path) -> None:
    with Cluster(logs) as cluster:
        harness = Harness(folder, logs, cluster.url)
        cluster.start_worker("first")
        cluster.start_worker("second")
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "tests.integration.soak.spark_rows", cluster.url, str(folder), str(ROWS)], check=True
        )
        print(f"{ROWS} rows, {sum(harness.ssts().values()) >> 20} MiB in {time.monotonic() - started:.0f} s")
        inputs = harness.ssts()
        coordinator = harness.start("shale_compactor", {"embedded_worker": "false"})
        driver = harness.start_driver()
        try:
            job = asyncio.run(submitted(harness))
            until(harness, job, lambda entry: share(entry) > 0.15)
            cluster.kill("first")
            killed = time.monotonic()
            until(harness, job, lambda entry: share(entry) > 0.35)
            read = input_bytes(driver)
            driver.process.kill()
            driver.process.wait()
            kept = share(asyncio.run(stored(harness, job)))
            print(f"worker and driver were killed; {kept:.0%} is kept")
            cluster.start_worker("third")
            driver = harness.start_driver()
            until(harness, job, lambda entry: entry.status is CompactionStatus.COMPLETED)
            print(f"completed {time.monotonic() - killed:.0f} s after the first kill")
            read += input_bytes(driver)
            assert driver.stop() == 0
        finally:
            for daemon in (driver, coordinator):
                if daemon.process.poll() is None:
                    daemon.process.kill()
                    daemon.process.wait()
    asyncio.run(spark_rows.check(folder, ROWS))
    repeated = read / sum(inputs.values()) - 1
    orphans = [name for name in harness.ssts() if name not in inputs and name not in asyncio.run(named_ssts(harness))]
    print(
        f"{read >> 20} MiB of {sum(inputs.values()) >> 20} MiB were read, {repeated:.1%} twice; {len(orphans)} orphans"
    )
    assert repeated < REPEATED_MAX
