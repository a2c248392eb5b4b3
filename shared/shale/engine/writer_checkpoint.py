"""The checkpoint under which a writer keeps the state that it serves (option ``writer_checkpoint``).

It is a checkpoint like any other, without an end, whose name says whose it is: SlateDB's manifests have no other place
for that.  A new state replaces it in the very version that brings the state.

Source: docs/protocol.md 9.1.
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
    """The manifest without the checkpoints of writers that are fenced by this epoch."""
    kept = tuple(entry for entry in manifest.checkpoints if _epoch_or(entry, epoch) >= epoch)
    return manifest if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)


class WriterCheckpoint:
    """Decides when the checkpoint of one writer is replaced."""

    def __init__(self, env: Env, epoch: int) -> None:
        self._env = env
        self._epoch = epoch
        self._id: UUID | None = None
        self._state: State | None = None

    def is_behind(self, manifest: Manifest) -> bool:
        """Whether a state is to be kept that is not: SSTs came or went, or the checkpoint was deleted."""
        return self._id is None or manifest.checkpoint(self._id) is None or _state_of(manifest) != self._state

    def renewal(self) -> Callable[[Manifest, int], Manifest]:
        """What one commit does; it may be called again after a conflict, perhaps on top of its own effect."""
        new_id = self._env.ids.uuid()

        def renew(manifest: Manifest, version: int) -> Manifest:
            if manifest.checkpoint(new_id) is not None or not self.is_behind(manifest):
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

    def note(self, committed: Versioned[Manifest]) -> None:
        """Remember what is kept, after a commit.

        Where others have committed since ours, what they have changed is not kept yet.
        """
        own = [entry for entry in committed.value.checkpoints if writer_epoch_of(entry) == self._epoch]
        if own and own[-1].id != self._id:
            self._id = own[-1].id
            self._state = _state_of(committed.value) if own[-1].manifest_id == committed.id else None

    def released(self, manifest: Manifest) -> Manifest:
        """The manifest without it."""
        return without_writers_before(manifest, self._epoch + 1)


def _epoch_or(checkpoint: Checkpoint, other: int) -> int:
    epoch = writer_epoch_of(checkpoint)
    return other if epoch is None else epoch


def _state_of(manifest: Manifest) -> State:
    return manifest.tree, manifest.segments
