"""``scrub``: read and check every object of a database to the last byte, on executors.

The driver reads the metadata, the tasks read everything else, and only findings come back.  A checkpoint keeps the
checked objects from being collected; objects that were collected together with another process's checkpoint are no
finding.
"""

import pickle
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
from anyio.from_thread import start_blocking_portal

from shale.admin.verify.inventory import Inventory, read_inventory
from shale.admin.verify.orphans import Orphan
from shale.admin.verify.parts import PartResult, VerifyPart, plan_parts, verify_part, wal_disorder
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation, DatabaseStores, resolve
from shale.env import Env
from shale.errors import CheckpointMissing, UnavailableError
from shale.protocol.checkpoints import create_checkpoint, renew_checkpoint, require_checkpoint_reference
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.wal_store import WalStore
from shale.sst.verify.finding import Finding
from shale.telemetry.metrics import Metrics
from shale_spark.source.lease import release_lease
from shale_spark.source.options import parse_where, where_options
from shale_spark.source.snapshot import open_manifest
from shale_spark.tasks import TaskInfo, run_async, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shale-spark-scrub"
_LIFETIME_MS = 30 * 60 * 1000
_RENEW_S = 5 * 60.0
_PART_BYTES = 128 * 1024**2
_ITEMS_MAX = 32
"""Objects per task; the plan carries their part of the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubReport:
    """The counts and findings of a scrub.

    ``versions``: manifests and compactions files.  ``orphans`` are no findings: they cost space, not rows.
    """

    findings: tuple[Finding, ...]
    orphans: tuple[Orphan, ...]
    manifest_id: int
    versions: int
    ssts: int
    wal_files: int
    rows: int
    read_bytes: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def scrub(
    spark: "SparkSession", where: DatabaseLocation | str, *, checkpoint: UUID | str | None = None, orphans: bool = True
) -> ScrubReport:
    """Check a database; blocks until that is done.

    Args:
        spark: a session.
        where: the database.
        checkpoint: an id or a name: only what this checkpoint keeps.
        orphans: look for unreferenced objects, too.

    Raises:
        LatestRecordMissing, InvalidDbState: there is no database, or it is incomplete.
        InvalidRequestError: its WAL is in a store of its own, and that was not named.
        CheckpointMissing: there is no such checkpoint.
        AmbiguousCheckpoint: several have that name.
        CorruptionError: the newest manifest cannot be read.
        UnavailableError: the store gave up.
    """
    place = parse_where(where_options(where if isinstance(where, DatabaseLocation) else resolve(where)))
    wanted = None if checkpoint is None else require_checkpoint_reference(checkpoint)
    with _protected(place, wanted):
        inventory = run_async(partial(_read, place, wanted))
        parts = list(plan_parts(inventory, part_bytes=_PART_BYTES, items_max=_ITEMS_MAX))
        results = [_decoded(data) for data in run_tasks(spark, [_plan(place, part) for part in parts], _work)]
        report = run_async(partial(_concluded, place, inventory, results))
    return report if orphans else replace(report, orphans=())


async def _read(where: DatabaseLocation, checkpoint: UUID | str | None, env: Env) -> Inventory:
    stores = where.connect(env, Metrics(), component="pipeline", is_bounded=True)
    try:
        return await read_inventory(stores.main, stores.wal, where.root, env, checkpoint=checkpoint)
    finally:
        await stores.aclose()


def _plan(where: DatabaseLocation, part: VerifyPart) -> bytes:
    return pickle.dumps((where, part))


def _work(plan: bytes, _: TaskInfo) -> bytes:
    where, part = pickle.loads(plan)  # noqa: S301 - Spark hands out what our own driver wrote
    return pickle.dumps(run_async(partial(_verified, where, part)))


async def _verified(where: DatabaseLocation, part: VerifyPart, env: Env) -> PartResult:
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        wal = WalStore(stores.wal or stores.main, where.root, transformer=where.block_transformer)
        return await verify_part(part, stores.main, wal, env)
    finally:
        await stores.aclose()


def _decoded(data: bytes) -> PartResult:
    result = pickle.loads(data)  # noqa: S301 - our own task wrote it
    assert isinstance(result, PartResult)
    return result


async def _concluded(
    where: DatabaseLocation, inventory: Inventory, results: Sequence[PartResult], env: Env
) -> ScrubReport:
    findings = [*inventory.findings, *(finding for result in results for finding in result.findings)]
    gone = {key for result in results for key in result.gone}
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        wal = WalStore(stores.wal or stores.main, where.root)
        findings += wal_disorder((seqs for result in results for seqs in result.wal), wal, inventory.latest)
        if gone:
            needed = await _needed_now(where, inventory.checkpoint, env)
            # Collected during the scrub: with another process's checkpoint, or before the new replay point.
            findings = [finding for finding in findings if finding.object not in gone - needed]
    finally:
        await stores.aclose()
    return ScrubReport(
        findings=tuple(dict.fromkeys(findings)),
        orphans=inventory.orphans,
        manifest_id=inventory.latest_id,
        versions=inventory.versions,
        ssts=len(inventory.ssts),
        wal_files=len(inventory.wal_files),
        rows=sum(result.rows for result in results),
        read_bytes=sum(result.read_bytes for result in results),
    )


async def _needed_now(where: DatabaseLocation, checkpoint: UUID | None, env: Env) -> set[str]:
    """Return the keys of SSTs that must exist now; missing WAL files are in the findings of the new inventory."""
    again = await _read(where, checkpoint, env)
    return {needed.path for needed in again.ssts} | {finding.object for finding in again.findings}


@contextmanager
def _protected(where: DatabaseLocation, checkpoint: UUID | str | None) -> Iterator[None]:
    """Keep the newest state from being collected; a named checkpoint is its owner's responsibility."""
    if checkpoint is not None:
        yield
        return
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_opened_lease(where, Env.system())) as lease,
    ):
        keeping = portal.start_task_soon(lease.keep)
        try:
            yield
        finally:
            keeping.cancel()
            portal.call(lease.release)


@dataclass(frozen=True, slots=True)
class _Lease:
    """The checkpoint of one scrub."""

    where: DatabaseLocation
    stores: DatabaseStores
    stored: StoredManifest
    env: Env
    checkpoint_id: UUID

    async def keep(self) -> None:
        """Renew the checkpoint until cancelled.  ``_concluded`` recognises what is collected without it."""
        while True:
            await anyio.sleep(_RENEW_S)
            try:
                await self.stored.refresh()
                await renew_checkpoint(self.stored, self.env, self.checkpoint_id, lifetime_ms=_LIFETIME_MS)
            except UnavailableError:
                continue  # a lifetime has several renewals
            except CheckpointMissing:
                return

    async def release(self) -> None:
        """Delete the checkpoint; the findings count even if this fails."""
        await release_lease(self.where, self.checkpoint_id, self.stores, self.env)


@asynccontextmanager
async def _opened_lease(where: DatabaseLocation, env: Env) -> AsyncIterator[_Lease]:
    stores = where.connect(env, Metrics(), component="pipeline", is_bounded=True)
    try:
        stored = await open_manifest(stores, where, env)
        entry = await create_checkpoint(stored, env, lifetime_ms=_LIFETIME_MS, name=NAME)
        yield _Lease(where, stores, stored, env, entry.id)
    finally:
        await stores.aclose()
