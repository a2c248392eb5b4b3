"""``admin.checkpoints``: create, refresh, delete and list checkpoints (docs/reference/protocol.md 9).

A checkpoint created here protects the state of the newest manifest, without later rows that are only in the WAL.
``Db.checkpoint`` of the writer includes those.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from uuid import UUID

from shale.admin.context import AdminContext
from shale.core.lazy_dataclass import dataclass
from shale.core.settings_values import Duration, parse_checkpoint_id, parse_lifetime_ms
from shale.errors import CheckpointMissing, ManifestMissing, UnknownCheckpoint
from shale.protocol.checkpoints import (
    create_checkpoint,
    list_checkpoints,
    release_checkpoints,
    renew_checkpoint,
    require_checkpoint_reference,
    require_name,
    resolve_checkpoint,
)
from shale.types import Checkpoint, Manifest, Sst


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveSsts:
    """The database's own SSTs that GC could delete without this checkpoint."""

    checkpoint: Checkpoint
    ssts: tuple[Sst, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint, kept: Manifest) -> Self:
        """Return all SSTs of the checkpoint's manifest, except borrowed ones."""
        borrowed = {sst_id for external in kept.external_dbs for sst_id in external.sst_ids}
        own = sorted((sst_id, sst) for sst_id, sst in kept.ssts().items() if sst_id not in borrowed)
        return cls(checkpoint=checkpoint, ssts=tuple(sst for _, sst in own))

    def without(self, other: Manifest) -> Self:
        """Return the SSTs that ``other`` does not reference."""
        needed = {view.sst.id for view in other.views()}
        return type(self)(checkpoint=self.checkpoint, ssts=tuple(sst for sst in self.ssts if sst.id not in needed))

    @property
    def size_bytes(self) -> int:
        """Estimated size of the SSTs in bytes."""
        return sum(sst.estimated_size_bytes for sst in self.ssts)


class CheckpointAdmin:
    """The checkpoints of one database.  Each change is one conditional write and fences no process."""

    def __init__(self, place: AdminContext) -> None:
        self._place = place

    async def create(
        self,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
        *,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Create a checkpoint of the newest state, or of the state of another checkpoint.

        Args:
            lifetime: time until it expires; ``None``: never.
            source: id or name of the other checkpoint.
            name: a label; need not be unique.
            checkpoint_id: id of the new checkpoint, so that the call can be repeated: an existing checkpoint with
                this id is returned unchanged.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built or destroyed.
            CheckpointMissing: the source does not exist, or has expired.
            AmbiguousCheckpoint: several checkpoints have the name of the source.
            InvalidCheckpointLifetime: not positive, or beyond the year 2106, the limit of the format.
            InvalidRequestError: the name cannot be stored, or is reserved for writers' checkpoints.
        """
        lifetime_ms, wanted_name = parse_lifetime_ms(lifetime), require_name(name)
        chosen = None if source is None else require_checkpoint_reference(source, what="source")
        wanted = None if checkpoint_id is None else parse_checkpoint_id(checkpoint_id)
        with self._counted("create"):
            await self._place.require_not_destroyed()
            return await create_checkpoint(
                await self._place.manifests.load(),
                self._place.env,
                lifetime_ms=lifetime_ms,
                name=wanted_name,
                source=chosen,
                id=wanted,
            )

    async def refresh(self, checkpoint_id: UUID | str, lifetime: Duration | None = None) -> Checkpoint:
        """Set the remaining lifetime of a checkpoint, also in a database that is being destroyed.

        Args:
            checkpoint_id: its id or name.
            lifetime: time from now until it expires; ``None``: never.

        Raises:
            LatestRecordMissing: there is no database.
            UnknownCheckpoint: there is no such checkpoint.
            AmbiguousCheckpoint: several checkpoints have that name.
            InvalidCheckpointLifetime: see ``create``.
        """
        wanted, lifetime_ms = require_checkpoint_reference(checkpoint_id), parse_lifetime_ms(lifetime)
        with self._counted("refresh"):
            stored = await self._place.manifests.load()
            try:
                found = self._resolve(stored.value, wanted)
                return await renew_checkpoint(stored, self._place.env, found.id, lifetime_ms=lifetime_ms)
            except CheckpointMissing as error:
                raise UnknownCheckpoint(error.id) from error

    async def delete(self, checkpoint_id: UUID | str) -> bool:
        """Delete a checkpoint, also in a database that is being destroyed; GC then deletes what only it protected.

        Args:
            checkpoint_id: its id or name.

        Returns:
            Whether it existed; otherwise nothing is written.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing: no checkpoint has that name.  A missing id is not an error: the call can be repeated.
            AmbiguousCheckpoint: several checkpoints have that name.
        """
        wanted = require_checkpoint_reference(checkpoint_id)
        with self._counted("delete"):
            stored = await self._place.manifests.load()
            try:
                found = self._resolve(stored.value, wanted)
            except CheckpointMissing as error:
                if isinstance(error.id, UUID):
                    return False
                raise
            return bool(await release_checkpoints(stored, [found.id]))

    async def get(self, checkpoint_id: UUID | str) -> Checkpoint:
        """Return a checkpoint by its id or name; an expired one is returned until GC removes it.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing: there is no such checkpoint.
            AmbiguousCheckpoint: several checkpoints have that name.
        """
        wanted = require_checkpoint_reference(checkpoint_id)
        return self._resolve((await self._place.manifests.read_latest()).value, wanted)

    async def exclusive_ssts(self, checkpoint_id: UUID | str) -> ExclusiveSsts:
        """Return the SSTs that only this checkpoint protects; other checkpoints count unless expired.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing, AmbiguousCheckpoint: see ``get``.
            ManifestMissing: the manifest of a checkpoint is gone.
        """
        wanted = require_checkpoint_reference(checkpoint_id)
        latest = (await self._place.manifests.read_latest()).value
        checkpoint = self._resolve(latest, wanted)
        found = ExclusiveSsts.of(checkpoint, await self._kept(checkpoint.manifest_id)).without(latest)
        now_ms = self._place.env.clock.now_ms()
        others = {each.manifest_id for each in latest.checkpoints if each != checkpoint and not each.is_expired(now_ms)}
        for manifest_id in sorted(others):
            # Sequentially: there may be many, and each may be large.
            found = found.without(await self._kept(manifest_id))
        return found

    async def list(self, name: str | None = None) -> tuple[Checkpoint, ...]:
        """Return all checkpoints in order of creation, including expired ones.

        Args:
            name: only those with this name; the empty string: those without a name.

        Raises:
            LatestRecordMissing: there is no database.
        """
        latest = await self._place.manifests.read_latest()
        return tuple(list_checkpoints(latest.value, name))

    def _resolve(self, manifest: Manifest, wanted: UUID | str) -> Checkpoint:
        return resolve_checkpoint(manifest, wanted, self._place.env.clock.now_ms(), expired_too=True)

    async def _kept(self, manifest_id: int) -> Manifest:
        manifest = await self._place.manifests.read(manifest_id)
        if manifest is None:
            raise ManifestMissing(manifest_id)
        return manifest

    @contextmanager
    def _counted(self, op: str) -> Iterator[None]:
        result = "error"
        try:
            yield
            result = "ok"
        finally:
            self._place.metrics.counter(
                "slatedb_checkpoint_operations_total", component=self._place.component, op=op, result=result
            ).inc()
