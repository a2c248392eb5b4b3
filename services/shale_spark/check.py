"""Does Spark work here: a session, executors with this package and its kernels, and a store that they reach."""

import pickle
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING, Any

import msgpack

from shale.engine.where import Where
from shale.env import Env
from shale.kernels.choice import load_kernels
from shale.protocol.manifest_store import ManifestStore
from shale.service.build import version
from shale.telemetry.metrics import Metrics
from shale_spark.tasks import TaskInfo, run_async, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSight:
    """What one executor sees.

    Args:
        manifest_id: the latest manifest of the database; 0 if there is no database.
        has_kernels: whether compiled loops work there; without them everything is many times slower.
    """

    host: str
    python: str
    shale: str
    has_kernels: bool
    manifest_id: int


def check(spark: "SparkSession", where: Where, *, tasks: int = 2) -> tuple[ExecutorSight, ...]:
    """Ask executors what they see; the same answer is told once.

    Args:
        tasks: how many are asked, side by side as far as there are cores.

    Raises:
        ShaleError: an executor cannot reach the store.
        PySparkException: an executor cannot run our code at all, mostly because it has no Shale.
    """
    # It comes from a pickle of our own making, sent to processes that run our code anyway.
    answers = run_tasks(spark, [pickle.dumps(where)] * tasks, _look)
    return tuple(dict.fromkeys(ExecutorSight(**msgpack.unpackb(answer)) for answer in answers))


def check_json(sight: ExecutorSight) -> Mapping[str, Any]:
    """As plain values."""
    return asdict(sight)


def _look(plan: bytes, _info: TaskInfo) -> bytes:
    where: Where = pickle.loads(plan)  # noqa: S301 - the driver's
    sight = ExecutorSight(
        host=gethostname(),
        python=platform.python_version(),
        shale=version(),
        has_kernels=load_kernels(),
        manifest_id=run_async(partial(_latest_manifest, where)),
    )
    return bytes(msgpack.packb(asdict(sight)) or b"")


async def _latest_manifest(where: Where, env: Env) -> int:
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        latest = await ManifestStore(stores.main, where.root, env).try_read_latest()
    finally:
        await stores.aclose()
    return 0 if latest is None else latest.id
