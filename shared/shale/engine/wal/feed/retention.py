"""Keep GC from deleting unread WAL files: a named checkpoint with a lease, which moves with the feed.

Source: docs/reference/protocol.md 8.5, 9.
"""

from shale.engine.wal.feed.offset import FeedOffset
from shale.env import Env
from shale.errors import ManifestMissing
from shale.protocol.checkpoints import add_checkpoint, list_checkpoints
from shale.protocol.followers import WalBounds, advance_follower, follower_name
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Manifest


class Retention:
    """The checkpoint of one feed.  Two feeds need two names: else one releases files that the other needs."""

    def __init__(self, manifests: ManifestStore, env: Env, *, name: str, lifetime_ms: int) -> None:
        self._manifests = manifests
        self._env = env
        self._name = name
        self._lifetime_ms = lifetime_ms
        self._pinned: WalBounds | None = None

    async def hold(self) -> int:
        """Pin the newest state unless a checkpoint of this name exists; call this before ``WalFeed.begin``.

        Returns:
            the WAL file after which every file is kept.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: the database is half built.
            ManifestMissing: the manifest version of the checkpoint is gone.
        """
        new_id = self._env.ids.uuid()

        def change(current: Versioned[Manifest]) -> Manifest | None:
            now_ms = self._env.clock.now_ms()
            if any(not entry.is_expired(now_ms) for entry in self._mine(current.value)):
                return None
            name = follower_name(self._name)
            return add_checkpoint(
                current.value, current.id + 1, id=new_id, now_ms=now_ms, lifetime_ms=self._lifetime_ms, name=name
            )

        committed = await (await self._manifests.load()).apply(change)
        kept_after = 0
        for entry in self._mine(committed.value):
            pinned = await self._manifests.read(entry.manifest_id)
            if pinned is None:
                raise ManifestMissing(entry.manifest_id)
            kept_after = max(kept_after, pinned.replay_after_wal_id)
        return kept_after

    def _mine(self, manifest: Manifest) -> list[Checkpoint]:
        return list_checkpoints(manifest, follower_name(self._name))

    async def move(self, read: FeedOffset) -> None:
        """Keep the files after ``read`` and release the others; write only if the checkpoint changes."""
        new_id = self._env.ids.uuid()

        def change(current: Versioned[Manifest]) -> Manifest | None:
            return advance_follower(
                current,
                id=new_id,
                name=self._name,
                read_wal_id=read.wal_id,
                pinned=self._pinned,
                now_ms=self._env.clock.now_ms(),
                lifetime_ms=self._lifetime_ms,
            )

        committed = await (await self._manifests.load()).apply(change)
        if committed.value.checkpoint(new_id) is not None:
            self._pinned = WalBounds.of(committed.value)
