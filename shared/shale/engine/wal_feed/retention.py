"""Keeps the collector from taking what a feed has not read: a named checkpoint with a lease, moved as the feed goes on.

Source: docs/protocol.md 8.5, 9.
"""

from shale.engine.wal_feed.offset import FeedOffset
from shale.env import Env
from shale.errors import ManifestMissing
from shale.protocol.checkpoints import add_checkpoint, list_checkpoints
from shale.protocol.followers import WalBounds, follower_name, move_follower
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Manifest


class Retention:
    """The checkpoint of one feed.  Two feeds need two names: the one that is ahead would take the other's away."""

    def __init__(self, manifests: ManifestStore, env: Env, *, name: str, lifetime_ms: int) -> None:
        self._manifests = manifests
        self._env = env
        self._name = name
        self._lifetime_ms = lifetime_ms
        self._pinned: WalBounds | None = None

    async def hold(self) -> int:
        """Pin the newest state unless a checkpoint of this name is there: before the feed looks where to begin.

        Returns:
            the WAL file behind which everything is kept.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built.
            ManifestMissing: the version that the checkpoint names is gone.
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
        """Keep everything behind ``read``, and nothing else.  Writes only if that makes a difference."""
        new_id = self._env.ids.uuid()

        def change(current: Versioned[Manifest]) -> Manifest | None:
            return move_follower(
                current.value,
                current.id + 1,
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
