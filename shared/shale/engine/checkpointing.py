"""Checkpoints that callers of a writer ask for (docs/protocol.md 9.1).

One that shall include everything that is written rides on the manifest update that brings the last of it to L0, so
that it costs no update of its own.  Another one is made at once, of what the manifest and the WAL have by then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

import anyio

from shale.engine.l0_plan import with_wal_frontier
from shale.engine.writer_manifest import Edit
from shale.engine.writer_parts import WriterParts
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.protocol.checkpoints import add_checkpoint, add_checkpoint_from, expire_s_after
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest

log = get_logger("checkpoints")


class CheckpointScope(StrEnum):
    """What a checkpoint of a writer includes: everything that is written now, or what is durable already."""

    ALL = "all"
    DURABLE = "durable"

    @classmethod
    def of(cls, value: "CheckpointScope | str") -> "CheckpointScope":
        """Read it as callers write it.

        Raises:
            InvalidRequestError: neither of them.
        """
        try:
            return cls(value)
        except ValueError:
            raise InvalidRequestError(f"scope={value!r}: must be 'all' or 'durable'") from None


class Wanted:
    """A checkpoint that somebody waits for.  Its id is drawn once: attempts that have landed are recognised."""

    def __init__(
        self,
        env: Env,
        *,
        through_seq: int,
        lifetime_ms: int | None,
        name: str | None,
        source: UUID | str | None,
        checkpoint_id: UUID | None,
    ) -> None:
        self.id = env.ids.uuid() if checkpoint_id is None else checkpoint_id
        self.through_seq = through_seq
        self.made: Checkpoint | None = None
        self._env = env
        self._lifetime_ms = lifetime_ms
        self._name = name
        self._source = source

    def edit(self, manifest: Manifest, version: int) -> Manifest:
        """The manifest with the checkpoint; see ``add_checkpoint`` for errors."""
        now_ms = self._env.clock.now_ms()
        if self._source is not None:
            added = add_checkpoint_from(
                manifest,
                self._source,
                id=self.id,
                now_ms=now_ms,
                lifetime_ms=self._lifetime_ms,
                name=self._name,
            )
        else:
            added = add_checkpoint(
                manifest, version, id=self.id, now_ms=now_ms, lifetime_ms=self._lifetime_ms, name=self._name
            )
        return manifest if added is None else added


class WaitingCheckpoints:
    """What the next manifest updates are to carry."""

    def __init__(self) -> None:
        self._waiting: list[Wanted] = []

    @contextmanager
    def having(self, wanted: Wanted) -> Iterator[None]:
        """Let ``wanted`` ride along while somebody waits for it."""
        self._waiting.append(wanted)
        try:
            yield
        finally:
            self._waiting.remove(wanted)

    def due(self, last_seq: int) -> tuple[Wanted, ...]:
        """Those for which everything is in L0 once rows up to ``last_seq`` are."""
        return tuple(wanted for wanted in self._waiting if wanted.through_seq <= last_seq)


def edit_of(due: tuple[Wanted, ...]) -> Edit:
    """Adds checkpoints to a manifest.  An impossible one is left out: its caller is told, and the flush goes on."""

    def edit(manifest: Manifest, version: int) -> Manifest:
        for wanted in due:
            try:
                manifest = wanted.edit(manifest, version)
            except InvalidRequestError:
                continue
        return manifest

    return edit


def settle(due: tuple[Wanted, ...], committed: Manifest) -> None:
    """Tell those who wait what was written."""
    for wanted in due:
        wanted.made = committed.checkpoint(wanted.id)


class Checkpointing:
    """Makes the checkpoints of one writer."""

    def __init__(
        self,
        parts: WriterParts,
        waiting: WaitingCheckpoints,
        *,
        start_flush: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._waiting = waiting
        self._start_flush = start_flush

    async def create(
        self,
        scope: CheckpointScope,
        *,
        lifetime_ms: int | None,
        name: str | None,
        source: UUID | str | None,
        checkpoint_id: UUID | None,
    ) -> Checkpoint:
        """See ``Db.checkpoint``."""
        env, instruments = self._parts.env, self._parts.instruments
        expire_s_after(env.clock.now_ms(), lifetime_ms)  # before anything is flushed for its sake
        wanted = Wanted(
            env,
            through_seq=self._parts.acceptor.committed_seq,
            lifetime_ms=lifetime_ms,
            name=name,
            source=source,
            checkpoint_id=checkpoint_id,
        )
        instruments.checkpoint_requested()
        if scope is CheckpointScope.ALL and source is None:
            await self._ride_along(wanted)
        made = wanted.made if wanted.made is not None else await self._now(wanted, of_current=source is None)
        instruments.checkpoint_made()
        log.info(Event.CHECKPOINT_CREATED, checkpoint_id=str(made.id), manifest_id=made.manifest_id, name=made.name)
        return made

    async def _ride_along(self, wanted: Wanted) -> None:
        """Flush, and let the checkpoint go with it; after ``checkpoint_flush_timeout_s`` it has not."""
        progress, timeout_s = self._parts.progress, self._parts.options.checkpoint_flush_timeout_s
        self._start_flush()
        with anyio.move_on_after(timeout_s) as scope, self._waiting.having(wanted):
            await progress.until_flushed(wanted.through_seq)
        if scope.cancelled_caught:
            log.warning(Event.CHECKPOINT_NOT_FLUSHED, checkpoint_id=str(wanted.id), timeout_s=timeout_s)

    async def _now(self, wanted: Wanted, *, of_current: bool) -> Checkpoint:
        wal_id = self._parts.progress.durable_wal_id

        def local(manifest: Manifest) -> Manifest:
            # With a checkpoint that has landed already nothing is left to write: a version in which only the end of
            # the WAL changes is how a writer says that it has closed.
            if not of_current or manifest.checkpoint(wanted.id) is not None:
                return manifest
            return with_wal_frontier(manifest, wal_id)

        committed = await self._parts.manifest.commit(local, wanted.edit)
        made = committed.checkpoint(wanted.id)
        assert made is not None
        return made
