"""Check of a Spark installation: a session, executors with this package and its kernels, and a store they can reach."""

import pickle
import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING, Any

import msgpack

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.kernels.dispatch import use_kernels
from shale.protocol.manifest_store import ManifestStore
from shale.service.build import version
from shale.telemetry.metrics import Metrics
from shale_spark.tasks import TaskInfo, run_async, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorInfo:
    """The environment of one executor.

    Args:
        host: its host name.
        python: the version of Python.
        shale: the version of Shale.
        has_kernels: whether compiled kernels load; without them every job is many times slower.
        manifest_id: the latest manifest of the database; 0 if there is no database.
    """

    host: str
    python: str
    shale: str
    has_kernels: bool
    manifest_id: int


def check(spark: "SparkSession", where: DatabaseLocation, *, tasks: int = 2) -> tuple[ExecutorInfo, ...]:
    """Return the environments of executors; equal ones once.

    Args:
        spark: a session.
        where: the database.
        tasks: number of executors to ask, in parallel as far as there are cores.

    Raises:
        ShaleError: an executor cannot reach the store.
        PySparkException: an executor cannot run our code, usually because Shale is not installed there.
    """
    # The pickle goes to processes that run our code.
    answers = run_tasks(spark, [pickle.dumps(where)] * tasks, _describe_executor)
    return tuple(dict.fromkeys(ExecutorInfo(**msgpack.unpackb(answer)) for answer in answers))


def check_json(sight: ExecutorInfo) -> Mapping[str, Any]:
    """Return the environment as plain values."""
    return asdict(sight)


def _describe_executor(plan: bytes, _info: TaskInfo) -> bytes:
    where: DatabaseLocation = pickle.loads(plan)  # noqa: S301 - the driver's
    sight = ExecutorInfo(
        host=gethostname(),
        python=platform.python_version(),
        shale=version(),
        has_kernels=use_kernels(),
        manifest_id=run_async(partial(_latest_manifest, where)),
    )
    return bytes(msgpack.packb(asdict(sight)) or b"")


async def _latest_manifest(where: DatabaseLocation, env: Env) -> int:
    stores = where.connect(env, Metrics(), component="pipeline", is_bounded=True)
    try:
        latest = await ManifestStore(stores.main, where.root, env).try_read_latest()
    finally:
        await stores.aclose()
    return 0 if latest is None else latest.id
