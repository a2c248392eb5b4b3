"""Keeps the collector from taking what a feed has not read: a named checkpoint with a lease, moved as the feed goes on.

Source: docs/protocol.md 8.5, 9.
"""

from shale.engine.wal_feed.offset import FeedOffset
from shale.env import Env
from shale.protocol.checkpoints import add_checkpoint
from shale.protocol.followers import WalBounds, follower_name, move_follower
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.types import Manifest


class Retention:
    """The checkpoint of one feed.  Two feeds need two names: the one that is ahead would take the other's away."""

    def __init__(self, manifests: ManifestStore, env: Env, *, name: str, lifetime_ms: int) -> None:
        self._manifests = manifests
        self._env = env
        self._name = name
        self._lifetime_ms = lifetime_ms
        self._pinned: WalBounds | None = None

    async def hold(self) -> None:
        """Pin the newest state unless a checkpoint of this name is there: before the feed looks where to begin.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidDbState: it is half built.
        """
        new_id = self._env.ids.uuid()

        def change(current: Versioned[Manifest]) -> Manifest | None:
            now_ms = self._env.clock.now_ms()
            name = follower_name(self._name)
            if any(entry.name == name and not entry.is_expired(now_ms) for entry in current.value.checkpoints):
                return None
            return add_checkpoint(
                current.value, current.id + 1, id=new_id, now_ms=now_ms, lifetime_ms=self._lifetime_ms, name=name
            )

        await (await self._manifests.load()).apply(change)

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
