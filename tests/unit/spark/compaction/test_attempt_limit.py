"""The caller of a compaction receives the reason of its failure."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.errors import CorruptionError, UnavailableError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.service.config.spark_section import SparkSettings
from shale.store.connect import connect
from shale.types import Compactions, CompactionStatus, Sst
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.progress import JobProgress
from shale_spark.compaction.worker import DEFAULTS, AttemptLimit, _work
from tests.unit.compactor.values import entry, manifest, spec, tree

pytestmark = pytest.mark.anyio
ENV = Env.system()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Failing(JobExecutor):
    error: Exception

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "attempts"), [(CorruptionError("for ever"), 1), (UnavailableError("perhaps not tomorrow"), 3)]
)
async def test_so_many_attempts_are_enough(error: Exception, attempts: int) -> None:
    limit, nothing = AttemptLimit(Failing(error)), cast("Any", None)
    ended: list[Exception] = []

    async def end() -> None:
        try:
            await limit.raise_failure()
        except type(error) as found:
            ended.append(found)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        for _attempt in range(attempts):
            await anyio.lowlevel.checkpoint()
            assert not ended
            with pytest.raises(type(error)):
                await limit.run(nothing, nothing)
    assert ended == [error]


async def test_a_job_with_damaged_inputs_ends_the_command_and_is_given_back(tmp_path: Path) -> None:
    """The inputs do not exist, so that the job fails without a session."""
    where = DatabaseLocation(f"file://{tmp_path}", "db")
    store = connect(where.store, ENV)
    await ManifestStore(store, "db", ENV).create_new(manifest(tree((3, 2, 1))))
    compactions = CompactionsStore(store, "db", ENV)
    job = replace(entry(500, spec((3, 2, 1), to=1)), status=CompactionStatus.SCHEDULED)
    await compactions.create_new(Compactions(entries=(job,)))
    settings = SparkSettings(master="sc://nowhere", ranges=2, event_host="127.0.0.1")
    working = replace(DEFAULTS, settings=settings)
    with anyio.fail_after(60), pytest.raises(CorruptionError, match="has no checksum"):
        await _work(cast("Any", object()), where, ENV, working, until=anyio.sleep_forever, only=frozenset({job.id}))
    left = (await compactions.read_latest()).value.get(job.id)
    assert left is not None
    assert left.status is CompactionStatus.SCHEDULED
    assert left.worker is None
