"""``admin.checkpoints``: states of a database that are kept from being collected (docs/protocol.md 9).

A checkpoint made here keeps what the newest manifest knows.  Rows that are only in the WAL behind it are not part of
it: ``Db.checkpoint`` of the process that writes them includes them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from shale.admin.checkpoint_cost import KeptAlone
from shale.admin.place import AdminPlace
from shale.engine.settings_values import Duration, checkpoint_id_of, parse_lifetime_ms
from shale.errors import CheckpointMissing, ManifestMissing, UnknownCheckpoint
from shale.protocol.checkpoint_names import checkpoint_reference, named_checkpoint
from shale.protocol.checkpoints import (
    create_checkpoint,
    list_checkpoints,
    release_checkpoints,
    renew_checkpoint,
    require_name,
)
from shale.types import Checkpoint, Manifest


class CheckpointAdmin:
    """The checkpoints of one database.  Every change is one conditional write and fences nobody."""

    def __init__(self, place: AdminPlace) -> None:
        self._place = place

    async def create(
        self,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
        *,
        checkpoint_id: UUID | str | None = None,
    ) -> Checkpoint:
        """Keep the newest state, or the one that another checkpoint keeps.

        Args:
            lifetime: how long; ``None`` is until it is deleted.
            source: the other checkpoint, by its id or name.
            name: for people; need not be unique.
            checkpoint_id: the id of the new one, drawn by the caller so that the call can be repeated: if it is
                there already, it is returned as it is.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built or destroyed.
            CheckpointMissing: the source is not there, or has expired.
            AmbiguousCheckpoint: several have the name of the source.
            InvalidCheckpointLifetime: not positive, or beyond what can be stored (the year 2106).
            InvalidRequestError: the name cannot be stored, or is that of a writer's own checkpoint.
        """
        lifetime_ms, wanted_name = parse_lifetime_ms(lifetime), require_name(name)
        chosen = None if source is None else checkpoint_reference(source, what="source")
        wanted = None if checkpoint_id is None else checkpoint_id_of(checkpoint_id)
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
        """Let a checkpoint live for so long from now on, also in a database that is being destroyed.

        Args:
            checkpoint_id: its id, or its name.
            lifetime: ``None`` is until it is deleted.

        Raises:
            LatestRecordMissing: there is no database.
            UnknownCheckpoint: it has no such checkpoint.
            AmbiguousCheckpoint: several have that name.
            InvalidCheckpointLifetime: see ``create``.
        """
        wanted, lifetime_ms = checkpoint_reference(checkpoint_id), parse_lifetime_ms(lifetime)
        with self._counted("refresh"):
            stored = await self._place.manifests.load()
            try:
                found = self._meant(stored.value, wanted)
                return await renew_checkpoint(stored, self._place.env, found.id, lifetime_ms=lifetime_ms)
            except CheckpointMissing as error:
                raise UnknownCheckpoint(error.id) from error

    async def delete(self, checkpoint_id: UUID | str) -> bool:
        """Let go of a state, also in a database that is being destroyed; what it alone needs can be collected.

        Args:
            checkpoint_id: its id, or its name.

        Returns:
            Whether it was there; nothing is written otherwise.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing: none has that name.  An id that is not there is no error: a repeated call meets that.
            AmbiguousCheckpoint: several have that name.
        """
        wanted = checkpoint_reference(checkpoint_id)
        with self._counted("delete"):
            stored = await self._place.manifests.load()
            try:
                found = self._meant(stored.value, wanted)
            except CheckpointMissing as error:
                if isinstance(error.id, UUID):
                    return False
                raise
            return bool(await release_checkpoints(stored, [found.id]))

    async def get(self, checkpoint_id: UUID | str) -> Checkpoint:
        """One checkpoint, by its id or name; also one that has expired and was not collected yet.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing: it has no such checkpoint.
            AmbiguousCheckpoint: several have that name.
        """
        wanted = checkpoint_reference(checkpoint_id)
        return self._meant((await self._place.manifests.read_latest()).value, wanted)

    async def kept_alone(self, checkpoint_id: UUID | str) -> KeptAlone:
        """What could be collected if a checkpoint were not there; other ones that have expired keep nothing.

        Raises:
            LatestRecordMissing: there is no database.
            CheckpointMissing, AmbiguousCheckpoint: see ``get``.
            ManifestMissing: what a checkpoint names is gone.
        """
        wanted = checkpoint_reference(checkpoint_id)
        latest = (await self._place.manifests.read_latest()).value
        checkpoint = self._meant(latest, wanted)
        found = KeptAlone.of(checkpoint, await self._kept(checkpoint.manifest_id)).without(latest)
        now_ms = self._place.env.clock.now_ms()
        others = {each.manifest_id for each in latest.checkpoints if each != checkpoint and not each.is_expired(now_ms)}
        for manifest_id in sorted(others):
            # One after the other: there may be many, and each may be large.
            found = found.without(await self._kept(manifest_id))
        return found

    async def list(self, name: str | None = None) -> tuple[Checkpoint, ...]:
        """All checkpoints in the order in which they were made, those that have expired included.

        Args:
            name: only those of this name; the empty one means those without a name.

        Raises:
            LatestRecordMissing: there is no database.
        """
        latest = await self._place.manifests.read_latest()
        return tuple(list_checkpoints(latest.value, name))

    def _meant(self, manifest: Manifest, wanted: UUID | str) -> Checkpoint:
        return named_checkpoint(manifest, wanted, self._place.env.clock.now_ms(), expired_too=True)

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
