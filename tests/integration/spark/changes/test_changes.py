"""The change stream in real queries: every change once and in order, over restarts, fail-over and collected files."""

from pathlib import Path

import anyio
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import shale
from shale.env import Env
from shale.protocol.checkpoints import list_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store
from shale_spark.changes.dataframe import changes
from shale_spark.codecs import OnDecodeError
from shale_spark.errors import shale_error_of
from tests.integration.spark.changes.harness import Sink, follow, log_of, write

END_S = 120


def checkpoints_of(folder: Path) -> list[str | None]:
    async def names() -> list[str | None]:
        manifest = await ManifestStore(open_store(f"file://{folder}"), "db", Env.system()).read_latest()
        return [checkpoint.name for checkpoint in list_checkpoints(manifest.value)]

    return anyio.run(names)


def test_every_change_once_over_restarts_fail_over_and_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Writers start, stop and are fenced between runs of one query; then an unread file is deleted."""
    url, place = f"file://{tmp_path}/db", tmp_path / "query"
    sink = Sink(place / "batches")
    write(url, 1)
    assert follow(spark, url, place, start=1, max_files_per_trigger=4, retain="test").awaitTermination(END_S)
    assert sink.taken() == log_of(tmp_path / "db")
    write(url, 2, leaves=False)
    write(url, 3)
    assert follow(spark, url, place, retain="test").awaitTermination(END_S)
    log = log_of(tmp_path / "db")
    assert sink.taken() == log
    assert {op for _, _, op, _, _ in log} == {"put", "delete"}
    assert len({wal_id for wal_id, *_ in log}) > 5
    assert checkpoints_of(tmp_path) == ["changes:test"]

    write(url, 4)
    gone = min(wal_id for wal_id, *_ in log_of(tmp_path / "db") if wal_id > log[-1][0])
    (tmp_path / "db" / "wal" / f"{gone:020}.sst").unlink()
    with pytest.raises(StreamingQueryException) as caught:
        follow(spark, url, place).awaitTermination(END_S)
    said = str(shale_error_of(caught.value))
    assert f"{gone:020}.sst" in said
    assert "on_gap" in said
    assert sink.taken() == log
    assert follow(spark, url, place, on_gap="skip").awaitTermination(END_S)
    assert sink.taken() == log + [change for change in log_of(tmp_path / "db") if change[0] > gone]


def test_a_stream_from_the_latest_change_on(spark: SparkSession, tmp_path: Path) -> None:
    """Its first batch is empty and has the start offset; later writes follow."""
    url, place = f"file://{tmp_path}/db", tmp_path / "query"
    sink = Sink(place / "batches")
    write(url, 1, rounds=2)
    before = log_of(tmp_path / "db")
    assert follow(spark, url, place, start="latest").awaitTermination(END_S)
    assert len(sink.files()) == 1
    assert sink.taken() == []
    write(url, 2, rounds=2)
    assert follow(spark, url, place, start="latest").awaitTermination(END_S)
    assert sink.taken() == log_of(tmp_path / "db")[len(before) :]


def test_values_with_columns(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"

    async def main() -> None:
        async with shale.Db.open(url) as db:
            await db.put(b"a", b'{"n": 1}')
            await db.delete(b"a")
            await db.put(b"b", b'{"n": 2}')
            await db.put(b"c", b"{")

    anyio.run(main)
    columns = "key string, op string, n int, seq bigint"
    stream = changes(spark, url, start=2, schema=columns, value_format="json", on_decode_error=OnDecodeError.PERMISSIVE)
    query = stream.writeStream.format("memory").queryName("columns").trigger(availableNow=True).start()
    assert query.awaitTermination(END_S)
    rows = [tuple(row) for row in spark.sql("select * from columns order by seq").collect()]
    assert rows == [("a", "delete", None, 2), ("b", "put", 2, 3), ("c", "put", None, 4)]
