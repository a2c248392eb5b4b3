"""``load``: a DataFrame becomes a database, or part of one, in a single commit.

Spark sorts the rows by key, tasks write SSTs straight into the store, and the driver adds them to one new manifest.
A failure before that leaves unreferenced SSTs, and the database as it was.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale_spark.errors import decode_error
from shale_spark.load.blocking_target import open_load_target
from shale_spark.load.dataframe import select_load_columns, sort_by_key, split_invalid_rows
from shale_spark.load.load_task import RESULT, decode_result, load_partition
from shale_spark.load.request import LoadArguments, load_request
from shale_spark.load.rules import LoadTaskPlan, LoadTaskResult, RowRules
from shale_spark.load.task_count import task_count
from shale_spark.tasks import interrupt, tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of a load.

    Args:
        rows: stored rows, tombstones for expired ones included.
        repeated: rows that another row of their key replaced.
        expired: rows that had expired at the time of the load.
        dead_letters: rows that could not be stored and were written to the folder of dead letters.
        ssts: number of SSTs written.
        stored_bytes: their size.
        seq: of all rows; 0 if there were none.
        l0_ssts: L0s of the database now.  At 8 a writer stops flushing until a compactor has reduced them.
    """

    rows: int
    repeated: int
    expired: int
    dead_letters: int
    ssts: int
    stored_bytes: int
    seq: int
    l0_ssts: int


def load(df: "DataFrame", where: DatabaseLocation | str, **arguments: Unpack[LoadArguments]) -> LoadResult:
    """Load the rows of a DataFrame.  All of them become visible at once, or none.

    Args:
        df: evaluated up to four times: for dead letters, for its size if Spark has no estimate, for the distribution of
            keys, and for the load itself.
        where: the database or its URL.
        arguments: keywords:

            ``key``, ``value``: columns of bytes or text; by default the ones of these names.
            ``value_format``: a value codec, which makes values of the columns ``value``, or of all others; with
            ``avro_schema`` for avro.
            ``ttl``, ``expire_at``: the lifetime of rows from now on, or the column with their expiry where it is not
            null.
            ``duplicates``: ``"error"``: a key that occurs twice ends the load; ``"last"``: the row with the greatest
            ``order_by`` is loaded (any one of equal rows).
            ``mode``: ``"create"`` a database, or ``"append"`` to one: rows replace older ones of their key.
            ``fence``: also take over from a writer that runs, or that may not have closed the database.
            ``dead_letters``: a folder, as Spark names them, for rows that cannot be stored; without it the first such
            row ends the load with an error.
            ``partitions``, ``sst_bytes``, ``block_size``, ``compression``, ``min_filter_keys``: the layout of SSTs;
            ``filter_policies``: their filters, which should be those of the database's other processes.

    Raises:
        InvalidRequestError: an argument, a column, or a row; names it.
        InvalidDbState: the database exists and must not, or does not and must, or may have a writer.
        FencedError: another writer came during the load.
        PySparkException: Spark gave up.
    """
    request = load_request(where, **arguments)
    spark = df.sparkSession
    chosen = select_load_columns(df, request.columns, request.codec)
    with open_load_target(request.where, mode=request.mode, fence=request.fence) as target:
        ids = Env.system().ids
        tag = f"shale.load.{ids.ulid()}"
        with target.watched(lambda: interrupt(spark, tag)), tagged(spark, tag):
            dead = 0
            if request.dead_letters is not None:
                chosen, bad = split_invalid_rows(chosen, request.codec)
                dead = _write_dead_letters(spark, bad, f"{request.dead_letters.rstrip('/')}/load={ids.ulid()}")
            plan = LoadTaskPlan(
                where=request.where,
                rules=RowRules(
                    stamp=target.stamp, duplicates=request.duplicates, ttl_ms=request.ttl_ms, codec=request.codec
                ),
                sst=request.sst,
                sst_bytes=request.sst_bytes,
            )
            count = request.partitions or task_count(chosen, mode=request.mode, sst_bytes=request.sst_bytes)
            parts = _run(sort_by_key(chosen, count), plan)
        manifest = target.commit([sst for part in parts for sst in part.ssts])
    return _result(parts, dead, seq=target.stamp.seq, l0_ssts=len(manifest.tree.l0))


def _run(ordered: "DataFrame", plan: LoadTaskPlan) -> list[LoadTaskResult]:
    rows = ordered.mapInArrow(partial(load_partition, plan), RESULT).collect()
    for row in rows:
        if row["is_error"]:
            raise decode_error(bytes(row["result"]))
    return [decode_result(bytes(row["result"])) for row in rows]


def _write_dead_letters(spark: "SparkSession", bad: "DataFrame", folder: str) -> int:
    """Write dead letters into a folder of their own, because a repeated load finds them again."""
    bad.write.parquet(folder)
    return spark.read.schema(bad.schema).parquet(folder).count()


def _result(parts: Sequence[LoadTaskResult], dead: int, *, seq: int, l0_ssts: int) -> LoadResult:
    ssts = [sst for part in parts for sst in part.ssts]
    return LoadResult(
        rows=sum(part.rows for part in parts),
        repeated=sum(part.repeated for part in parts),
        expired=sum(part.expired for part in parts),
        dead_letters=dead,
        ssts=len(ssts),
        stored_bytes=sum(sst.estimated_size_bytes for sst in ssts),
        seq=seq if ssts else 0,
        l0_ssts=l0_ssts,
    )
