"""The checkpoint that keeps the SSTs a writer serves, and is its sign of life (option ``writer_checkpoint``).

The claim of the epoch creates it, the manifest version that brings a new state replaces it, and after half of its
lifetime a poll does.  So it costs no request of its own while the writer flushes.  It expires, because a writer that
crashed must not keep garbage until the next one comes.  The challenge of a standby makes the next poll replace it.

Source: docs/reference/protocol.md 9.1.
"""

from collections.abc import Callable
from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING

from shale.engine.options import DbOptions
from shale.env import Env
from shale.protocol.checkpoints import add_checkpoint
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Epoch, Manifest, Segment, Tree
from shale.types.writer_sign import WriterIdentity, embedded_compactor, is_challenged, without_challenges

if TYPE_CHECKING:
    from uuid import UUID

State = tuple[Tree, tuple[Segment, ...]]
_POLLS_MIN = 4
"""A lifetime has at least this many polls, so that one slow poll does not end it."""


def without_writers_before(manifest: Manifest, epoch: int) -> Manifest:
    """Return the manifest without the checkpoints of writers older than ``epoch``."""
    kept = tuple(entry for entry in manifest.checkpoints if _epoch_or(entry, epoch) >= epoch)
    return manifest if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)


class WriterCheckpoint:
    """Decides when one writer's checkpoint is replaced.

    Args:
        env: clock and ids.
        identity: what its name tells.
        lifetime_ms: it is replaced after half of this, also if nothing changes.
    """

    def __init__(self, env: Env, identity: WriterIdentity, lifetime_ms: int) -> None:
        self._env = env
        self._identity = identity
        self._lifetime_ms = lifetime_ms
        self._epoch = Epoch(0)
        self._own: Checkpoint | None = None
        self._state: State | None = None

    @classmethod
    def of_options(cls, options: DbOptions, env: Env) -> "WriterCheckpoint | None":
        """Return the checkpoint of a writer that opens now; ``None`` if it keeps none."""
        if not options.writer_checkpoint:
            return None
        lifetime_s = max(options.writer_checkpoint_lifetime_s, _POLLS_MIN * options.manifest_poll_interval_s)
        identity = WriterIdentity(
            holder=env.ids.uuid().hex,
            host=gethostname(),
            since_s=env.clock.now_ms() // 1000,
            endpoint=options.writer_endpoint,
        )
        return cls(env, identity, round(1000 * lifetime_s))

    def claimed(self, manifest: Manifest, epoch: Epoch, version: int) -> Manifest:
        """Return the manifest of a claim with the checkpoint; a conflict calls this again, with a higher epoch."""
        self._epoch = epoch
        return self._with_new(manifest, version, self._env.ids.uuid())

    def is_outdated(self, manifest: Manifest) -> bool:
        """Whether the checkpoint has to be replaced.

        It does not keep the SSTs of ``manifest``, was deleted, is half through its life, or a standby asks for it.
        """
        own = self._own
        if own is None or manifest.checkpoint(own.id) is None or _state_of(manifest) != self._state:
            return True
        if is_challenged(manifest, self._epoch):
            return True
        return 2 * (own.expire_s * 1000 - self._env.clock.now_ms()) <= self._lifetime_ms

    def renewal(self) -> Callable[[Manifest, int], Manifest]:
        """Return the edit of one commit; a conflict calls it again, perhaps on top of its own effect."""
        new_id = self._env.ids.uuid()

        def renew(manifest: Manifest, version: int) -> Manifest:
            if manifest.checkpoint(new_id) is not None or not self.is_outdated(manifest):
                return manifest
            return self._with_new(manifest, version, new_id)

        return renew

    def record(self, committed: Versioned[Manifest]) -> None:
        """Record which state the checkpoint keeps, after a commit.

        If others have committed since the checkpoint was created, their changes are not kept yet.
        """
        own = [entry for entry in committed.value.checkpoints if entry.writer_epoch == self._epoch]
        if own and (self._own is None or own[-1].id != self._own.id):
            self._own = own[-1]
            self._state = _state_of(committed.value) if own[-1].manifest_id == committed.id else None

    def without_own(self, manifest: Manifest) -> Manifest:
        """Return the manifest without this writer's checkpoint."""
        return without_writers_before(manifest, self._epoch + 1)

    def _with_new(self, manifest: Manifest, version: int, new_id: "UUID") -> Manifest:
        # The new checkpoint answers all challenges so far, so that they keep no garbage.
        manifest = without_challenges(manifest, self._epoch)
        kept = tuple(entry for entry in manifest.checkpoints if _epoch_or(entry, self._epoch + 1) > self._epoch)
        identity = replace(self._identity, compactor=embedded_compactor(manifest))
        added = add_checkpoint(
            replace(manifest, checkpoints=kept),
            version,
            id=new_id,
            now_ms=self._env.clock.now_ms(),
            lifetime_ms=self._lifetime_ms,
            name=identity.checkpoint_name(self._epoch),
        )
        assert added is not None
        return added


def _epoch_or(checkpoint: Checkpoint, other: int) -> int:
    epoch = checkpoint.writer_epoch
    return other if epoch is None else epoch


def _state_of(manifest: Manifest) -> State:
    return manifest.tree, manifest.segments
