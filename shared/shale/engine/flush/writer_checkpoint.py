"""The checkpoint that keeps the SSTs a writer serves (option ``writer_checkpoint``).

It is an ordinary checkpoint without expiry; its name holds the writer's epoch, because SlateDB's manifests have no
other place for it.  The manifest version that brings a new state also replaces the checkpoint.

Source: docs/reference/protocol.md 9.1.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from shale.env import Env
from shale.protocol.checkpoints import add_checkpoint, writer_epoch_of
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Manifest, Segment, Tree

if TYPE_CHECKING:
    from uuid import UUID

State = tuple[Tree, tuple[Segment, ...]]


def without_writers_before(manifest: Manifest, epoch: int) -> Manifest:
    """Return the manifest without the checkpoints of writers older than ``epoch``."""
    kept = tuple(entry for entry in manifest.checkpoints if _epoch_or(entry, epoch) >= epoch)
    return manifest if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)


class WriterCheckpoint:
    """Decides when one writer's checkpoint is replaced."""

    def __init__(self, env: Env, epoch: int) -> None:
        self._env = env
        self._epoch = epoch
        self._id: UUID | None = None
        self._state: State | None = None

    def is_outdated(self, manifest: Manifest) -> bool:
        """Whether the checkpoint does not keep the SSTs of ``manifest``, or was deleted."""
        return self._id is None or manifest.checkpoint(self._id) is None or _state_of(manifest) != self._state

    def renewal(self) -> Callable[[Manifest, int], Manifest]:
        """Return the edit of one commit; a conflict calls it again, perhaps on top of its own effect."""
        new_id = self._env.ids.uuid()

        def renew(manifest: Manifest, version: int) -> Manifest:
            if manifest.checkpoint(new_id) is not None or not self.is_outdated(manifest):
                return manifest
            kept = tuple(entry for entry in manifest.checkpoints if _epoch_or(entry, self._epoch + 1) > self._epoch)
            added = add_checkpoint(
                replace(manifest, checkpoints=kept),
                version,
                id=new_id,
                now_ms=self._env.clock.now_ms(),
                lifetime_ms=None,
                name=f"writer:{self._epoch}",
            )
            assert added is not None
            return added

        return renew

    def record(self, committed: Versioned[Manifest]) -> None:
        """Record which state the checkpoint keeps, after a commit.

        If others have committed since the checkpoint was created, their changes are not kept yet.
        """
        own = [entry for entry in committed.value.checkpoints if writer_epoch_of(entry) == self._epoch]
        if own and own[-1].id != self._id:
            self._id = own[-1].id
            self._state = _state_of(committed.value) if own[-1].manifest_id == committed.id else None

    def without_own(self, manifest: Manifest) -> Manifest:
        """Return the manifest without this writer's checkpoint."""
        return without_writers_before(manifest, self._epoch + 1)


def _epoch_or(checkpoint: Checkpoint, other: int) -> int:
    epoch = writer_epoch_of(checkpoint)
    return other if epoch is None else epoch


def _state_of(manifest: Manifest) -> State:
    return manifest.tree, manifest.segments
