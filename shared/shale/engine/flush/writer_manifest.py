"""The writer's manifest: its own fields on top of the newest version that others have committed.

Source: docs/reference/protocol.md 3.4, 4.8, 4.10.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import anyio

from shale.engine.flush.writer_checkpoint import WriterCheckpoint
from shale.env import Env
from shale.errors import UnavailableError
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.rebase import rebase_writer
from shale.protocol.versioned import Versioned
from shale.telemetry import tracing
from shale.types import Manifest

Edit = Callable[[Manifest, int], Manifest]
"""Maps a state, and the version under which the result will be written, to a new state.  Called again after conflicts.
"""


def _unchanged(manifest: Manifest, _version: int) -> Manifest:
    return manifest


def _same(manifest: Manifest) -> Manifest:
    return manifest


class WriterManifest:
    """The newest manifest that this writer knows, as ``current``.  Requests run one at a time.

    ``proved_at_s``: start of the last request that proved that no newer writer has claimed, on the monotonic clock.

    Args:
        fenceable: the claimed manifest.
        env: clock and ids.
        on_change: called after ``current`` has changed.
        checkpoint: this writer's own checkpoint, which the claim has created.
    """

    def __init__(
        self,
        fenceable: FenceableManifest,
        env: Env,
        on_change: Callable[[], None],
        checkpoint: WriterCheckpoint | None = None,
    ) -> None:
        self.current: Manifest = fenceable.value
        self.proved_at_s = env.clock.monotonic_s()
        self._on_change = on_change
        self._fenceable = fenceable
        self._env = env
        self._lock = anyio.Lock()
        self._own_checkpoint = checkpoint
        self._is_pinning = checkpoint is not None
        if checkpoint is not None:
            checkpoint.record(fenceable.current)

    @property
    def epoch(self) -> int:
        """The writer's epoch."""
        return self._fenceable.epoch

    @property
    def id(self) -> int:
        """The newest version seen."""
        return self._fenceable.id

    def on_other_commit(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function after each commit by a compactor or an admin in this process, until the context ends."""
        return self._fenceable.store.on_other_commit(call)

    async def renew_checkpoint(self) -> None:
        """Replace this writer's checkpoint, if it has one, once the SSTs have changed or half of its life is over.

        Raises:
            FencedError: a newer writer has claimed.
        """
        own = self._own_checkpoint
        if own is not None and self._is_pinning and own.is_outdated(self.current):
            await self.commit(_same)

    def stop_pinning(self) -> None:
        """Let the next commit delete this writer's checkpoint: the writer is closing and serves no reads."""
        self._is_pinning = False

    async def release_checkpoint(self) -> None:
        """Delete this writer's checkpoint, unless an earlier commit has done so.

        Raises:
            FencedError: a newer writer has claimed.
        """
        self.stop_pinning()
        own = self._own_checkpoint
        if own is not None and own.without_own(self.current) is not self.current:
            await self.commit(_same)

    async def refresh(self) -> None:
        """Read the newest version.

        Raises:
            FencedError: a newer writer has claimed.
        """
        async with self._lock:
            started = self._env.clock.monotonic_s()
            remote = await self._fenceable.refresh()
            self.proved_at_s = started
            self._adopt(rebase_writer(self.current, remote.value))

    async def commit(
        self,
        local: Callable[[Manifest], Manifest],
        edit: Edit = _unchanged,
        after: Callable[[], None] | None = None,
        pause: Callable[[UnavailableError], Awaitable[None]] | None = None,
        is_final: bool = False,
    ) -> Manifest:
        """Write a new version.

        Only the last version of a writer may leave the state unchanged: it tells others that the writer has closed.
        An attempt that is found in the newest version is therefore not repeated.

        Args:
            local: changes the fields that only the writer owns.
            edit: changes the rest, on top of the newest version.
            after: called after the commit and before ``on_change``.
            pause: waits between attempts while the store does not answer; ``None``: the error is raised.  A failed
                attempt may have landed, so nothing else is read or written before its outcome is known.
            is_final: write even an unchanged state; no other commit follows.

        Raises:
            FencedError: a newer writer has claimed; nothing was written.
        """
        async with self._lock:
            wanted = local(self.current)
            renew = self._checkpoint_edit()

            def change(remote: Versioned[Manifest]) -> Manifest | None:
                value = renew(edit(rebase_writer(wanted, remote.value), remote.id + 1), remote.id + 1)
                return value if is_final or value != remote.value else None

            while True:
                try:
                    with tracing.step("manifest.update"):
                        committed = await self._fenceable.apply(change, repeats=is_final)
                    break
                except UnavailableError as error:
                    if pause is None:
                        raise
                    await pause(error)
            if self._own_checkpoint is not None:
                self._own_checkpoint.record(committed)
            if after is not None:
                after()
            self._adopt(committed.value)
            return committed.value

    def _checkpoint_edit(self) -> Edit:
        own = self._own_checkpoint
        if own is None:
            return _unchanged
        return own.renewal() if self._is_pinning else lambda manifest, _: own.without_own(manifest)

    def _adopt(self, manifest: Manifest) -> None:
        if manifest != self.current:
            self.current = manifest
            self._on_change()
