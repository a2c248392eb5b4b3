"""Scrub on executors: undamaged databases of both libraries have no findings, and every damage is found."""

import shutil
from pathlib import Path

import anyio
from pyspark.sql import SparkSession

import shale
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store
from shale.types import Manifest
from shale_spark.scrub import scrub
from tests.golden_files import FIXTURES
from tests.integration.spark.changes.harness import write


def manifest_of(folder: Path) -> Manifest:
    async def read() -> Manifest:
        return (await ManifestStore(open_store(f"file://{folder}"), "db", Env.system()).read_latest()).value

    return anyio.run(read)


def test_sound_and_damaged_databases(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    write(url, 1)
    write(url, 2)

    async def checkpoint() -> str:
        async with shale.Db.open(url) as db:
            return str((await db.checkpoint(name="mine")).id)

    checkpoint_id = anyio.run(checkpoint)
    report = scrub(spark, url)
    assert report.findings == ()
    assert report.is_sound
    assert report.rows > 50
    assert report.ssts >= 2
    assert [entry.name for entry in manifest_of(tmp_path).checkpoints] == ["mine"], "its own checkpoint is gone"

    used = sorted(f"{sst_id}.sst" for sst_id in manifest_of(tmp_path).ssts())
    broken, gone = (tmp_path / "db" / "compacted" / name for name in used[:2])
    data = bytearray(broken.read_bytes())
    data[5] ^= 1
    broken.write_bytes(data)
    gone.unlink()
    report = scrub(spark, url, orphans=False)
    damaged = {f"db/compacted/{path.name}" for path in (broken, gone)}
    assert {finding.object for finding in report.findings} == damaged
    assert report.orphans == ()
    of_checkpoint = scrub(spark, url, checkpoint=checkpoint_id)
    assert {finding.object for finding in of_checkpoint.findings} == damaged


def test_a_database_of_slatedb(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "segments_compacted", tmp_path / "store")
    root = next(path.parent.name for path in sorted((tmp_path / "store").glob("*/manifest")))
    report = scrub(spark, f"file://{tmp_path}/store/{root}")
    assert report.findings == ()
    assert report.rows
