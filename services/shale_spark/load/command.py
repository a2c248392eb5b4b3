"""``load``: a DataFrame becomes a database, or part of one, in a single commit.

Spark brings the rows into key order, tasks write SSTs straight into the store, and the driver names them in one new
manifest.  Whatever dies before that leaves SSTs that no manifest names, and the database as it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

from shale.engine.where import Where
from shale.env import Env
from shale_spark.load.frame import chosen_columns, in_key_order, judged
from shale_spark.load.open_target import held_target
from shale_spark.load.part import decode_part
from shale_spark.load.request import LoadArguments, load_request
from shale_spark.load.rules import Part, PartPlan, RowRules
from shale_spark.load.task import RESULT, load_partition
from shale_spark.load.task_count import task_count
from shale_spark.tags import interrupt, tagged
from shale_spark.task_errors import decode_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load has done.

    Args:
        rows: that were stored, tombstones for expired ones included.
        repeated: rows that another row of their key has replaced.
        expired: rows that had expired at the time of the load.
        dead_letters: rows that could not be stored and were put aside.
        ssts: how many were written.
        stored_bytes: their size.
        seq: of all rows; 0 if there were none.
        l0_ssts: how many L0s the database has now.  At 8 a writer stops flushing until a compactor has made room.
    """

    rows: int
    repeated: int
    expired: int
    dead_letters: int
    ssts: int
    stored_bytes: int
    seq: int
    l0_ssts: int


def load(df: "DataFrame", where: Where | str, **arguments: Unpack[LoadArguments]) -> LoadResult:
    """Load the rows of a DataFrame.  All of them become visible at once, or none.

    Args:
        df: evaluated up to four times: for dead letters, for its size where Spark cannot tell, to find out where keys
            lie, and to load.
        where: the database: its URL, or where it is.
        arguments: keywords:

            ``key``, ``value``: columns of bytes or text; by default the ones of these names.
            ``value_format``: a value codec, which makes values of the columns ``value``, or of all others; with
            ``avro_schema`` for avro.
            ``ttl``, ``expire_at``: rows live so long from now on, or until what a column says where it is not null.
            ``duplicates``: a key that occurs twice is an error that names it (``"error"``), or of its rows the one
            with the greatest ``order_by`` is loaded (``"last"``; of equal ones it is not said which).
            ``mode``: ``"create"`` a database, or ``"append"`` to one: rows replace older ones of their key.
            ``fence``: also take over from a writer that runs, or that is not known to have closed the database.
            ``dead_letters``: a folder, as Spark names them, for rows that cannot be stored; without it the first of
            them ends the load and is named.
            ``partitions``, ``sst_bytes``, ``block_size``, ``compression``, ``min_filter_keys``: how SSTs look;
            ``filter_policies``: their filters, which should be those of the database's other processes.

    Raises:
        InvalidRequestError: an argument, a column, or a row; says which.
        InvalidDbState: the database is there and should not be, or the other way round, or somebody may be writing it.
        FencedError: another writer came during the load.
        PySparkException: Spark gave up.
    """
    request = load_request(where, **arguments)
    spark = df.sparkSession
    chosen = chosen_columns(df, request.columns, request.codec)
    with held_target(request.where, mode=request.mode, fence=request.fence) as target:
        ids = Env.system().ids
        tag = f"shale.load.{ids.ulid()}"
        with target.watched(lambda: interrupt(spark, tag)), tagged(spark, tag):
            dead = 0
            if request.dead_letters is not None:
                chosen, bad = judged(chosen, request.codec)
                dead = _put_aside(spark, bad, f"{request.dead_letters.rstrip('/')}/load={ids.ulid()}")
            plan = PartPlan(
                where=request.where,
                rules=RowRules(
                    stamp=target.stamp, duplicates=request.duplicates, ttl_ms=request.ttl_ms, codec=request.codec
                ),
                sst=request.sst,
                sst_bytes=request.sst_bytes,
            )
            count = request.partitions or task_count(chosen, mode=request.mode, sst_bytes=request.sst_bytes)
            parts = _run(in_key_order(chosen, count), plan)
        manifest = target.commit([sst for part in parts for sst in part.ssts])
    return _result(parts, dead, seq=target.stamp.seq, l0_ssts=len(manifest.tree.l0))


def _run(ordered: "DataFrame", plan: PartPlan) -> list[Part]:
    rows = ordered.mapInArrow(partial(load_partition, plan), RESULT).collect()
    for row in rows:
        if row["is_error"]:
            raise decode_error(bytes(row["result"]))
    return [decode_part(bytes(row["result"])) for row in rows]


def _put_aside(spark: "SparkSession", bad: "DataFrame", folder: str) -> int:
    """Write dead letters into a folder of their own, since a load that is tried again finds them again."""
    bad.write.parquet(folder)
    return spark.read.schema(bad.schema).parquet(folder).count()


def _result(parts: Sequence[Part], dead: int, *, seq: int, l0_ssts: int) -> LoadResult:
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
