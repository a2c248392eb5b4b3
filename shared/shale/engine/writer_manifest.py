"""The writer's manifest: its own state on top of whatever others commit (docs/protocol.md 3.4, 4.8, 4.10)."""

from collections.abc import Awaitable, Callable

import anyio

from shale.engine.writer_checkpoint import WriterCheckpoint, without_writers_before
from shale.env import Env
from shale.errors import UnavailableError
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.rebase import rebase_writer
from shale.protocol.versioned import Versioned
from shale.types import Manifest

Edit = Callable[[Manifest, int], Manifest]
"""From the state and the id under which the result will be written to the new state; called again after conflicts."""


def _unchanged(manifest: Manifest, _version: int) -> Manifest:
    return manifest


def _same(manifest: Manifest) -> Manifest:
    return manifest


class WriterManifest:
    """The newest manifest that this writer knows, as ``current``.  One request at a time.

    ``proved_at_s``: start of the last request that showed our epoch still in force, on the monotonic clock.
    """

    def __init__(self, fenceable: FenceableManifest, env: Env) -> None:
        self.current: Manifest = fenceable.value
        self.proved_at_s = env.clock.monotonic_s()
        self.on_change: Callable[[], None] = _nothing
        self._fenceable = fenceable
        self._env = env
        self._turn = anyio.Lock()
        self._own_checkpoint: WriterCheckpoint | None = None

    @property
    def epoch(self) -> int:
        """The writer's epoch."""
        return self._fenceable.epoch

    @property
    def id(self) -> int:
        """The newest version seen."""
        return self._fenceable.id

    async def begin(self, *, keeps_checkpoint: bool) -> None:
        """Let go of what fenced writers have kept, and keep the state that this one serves, if it shall.

        Raises:
            FencedError: a newer writer has claimed.
        """
        if keeps_checkpoint:
            self._own_checkpoint = WriterCheckpoint(self._env, self.epoch)
            await self.commit(_same)
        elif without_writers_before(self.current, self.epoch) is not self.current:
            await self.commit(_same, lambda manifest, _: without_writers_before(manifest, self.epoch))

    async def keep_up(self) -> None:
        """Keep the state as others have changed it, if this writer keeps one.

        Raises:
            FencedError: a newer writer has claimed.
        """
        if self._own_checkpoint is not None and self._own_checkpoint.is_behind(self.current):
            await self.commit(_same)

    async def let_go(self) -> None:
        """Keep nothing any more.

        Raises:
            FencedError: a newer writer has claimed.
        """
        own, self._own_checkpoint = self._own_checkpoint, None
        if own is not None:
            await self.commit(_same, lambda manifest, _: own.released(manifest))

    async def refresh(self) -> None:
        """Take over what others have committed.

        Raises:
            FencedError: a newer writer has claimed.
        """
        async with self._turn:
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

        No version but the last one of a writer may leave everything as it was: that is how others know that it has
        closed.  So an attempt of ours that is found in the newest version is not repeated.

        Args:
            local: changes fields that only the writer owns.
            edit: changes the rest, on top of the newest version.
            after: called once the version is committed and before anybody hears of it.
            pause: waits between attempts while the store does not answer; without it such an error is raised.  An
                attempt may have landed, so nothing else is read or written before its outcome is known.
            is_final: written in any case; no other commit follows.

        Raises:
            FencedError: a newer writer has claimed; nothing was written.
        """
        async with self._turn:
            wanted = local(self.current)
            own = self._own_checkpoint
            renew = _unchanged if own is None else own.renewal()

            def change(remote: Versioned[Manifest]) -> Manifest | None:
                value = renew(edit(rebase_writer(wanted, remote.value), remote.id + 1), remote.id + 1)
                return value if is_final or value != remote.value else None

            while True:
                try:
                    committed = await self._fenceable.apply(change, repeats=is_final)
                    break
                except UnavailableError as error:
                    if pause is None:
                        raise
                    await pause(error)
            if own is not None:
                own.note(committed)
            if after is not None:
                after()
            self._adopt(committed.value)
            return committed.value

    def _adopt(self, manifest: Manifest) -> None:
        if manifest != self.current:
            self.current = manifest
            self.on_change()


def _nothing() -> None:
    return
