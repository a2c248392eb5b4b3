"""Checkpoints that callers of a writer request.

A checkpoint of everything written is created by the manifest update that brings the last of its rows to L0, so it costs
no update of its own.  A checkpoint of durable rows is created at once.

Source: docs/reference/protocol.md 9.1.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import invalid_choice
from shale.engine.flush.planner import with_wal_frontier
from shale.engine.flush.writer_manifest import Edit, WriterManifest
from shale.engine.options import DbOptions
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.protocol.checkpoints import add_checkpoint, add_checkpoint_from, expire_s_after
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest

log = get_logger("checkpoints")


class CheckpointScope(StrEnum):
    """What a checkpoint of a writer includes: all rows written so far, or only the durable ones."""

    ALL = "all"
    DURABLE = "durable"

    @classmethod
    def of(cls, value: "CheckpointScope | str") -> "CheckpointScope":
        """Parse a caller's value.

        Raises:
            InvalidRequestError: neither ``all`` nor ``durable``.
        """
        try:
            return cls(value)
        except ValueError:
            raise invalid_choice("scope", value, list(cls)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest:
    """The arguments of ``Db.checkpoint``.

    ``lifetime_ms``: ``None`` is for ever.  ``source``: the checkpoint whose state the new one keeps.
    """

    scope: CheckpointScope
    lifetime_ms: int | None = None
    name: str | None = None
    source: UUID | str | None = None
    checkpoint_id: UUID | None = None


class PendingCheckpoint:
    """A requested checkpoint.  Its id is assigned once, so an attempt whose answer was lost is recognised.

    Args:
        request: the caller's arguments.
        through_seq: the checkpoint includes all rows up to this sequence number.
        env: clock and ids.
    """

    def __init__(self, request: CheckpointRequest, through_seq: int, env: Env) -> None:
        self.id = env.ids.uuid() if request.checkpoint_id is None else request.checkpoint_id
        self.through_seq = through_seq
        self.created: Checkpoint | None = None
        self._request = request
        self._env = env

    def edit(self, manifest: Manifest, version: int) -> Manifest:
        """Return the manifest with the checkpoint; see ``add_checkpoint`` for errors."""
        request, now_ms = self._request, self._env.clock.now_ms()
        if request.source is not None:
            added = add_checkpoint_from(
                manifest,
                request.source,
                id=self.id,
                now_ms=now_ms,
                lifetime_ms=request.lifetime_ms,
                name=request.name,
            )
        else:
            added = add_checkpoint(
                manifest, version, id=self.id, now_ms=now_ms, lifetime_ms=request.lifetime_ms, name=request.name
            )
        return manifest if added is None else added


class PendingCheckpoints:
    """The requested checkpoints that the next manifest updates create."""

    def __init__(self) -> None:
        self._pending: list[PendingCheckpoint] = []

    @contextmanager
    def attach_pending(self, pending: PendingCheckpoint) -> Iterator[None]:
        """Let manifest updates create ``pending`` while the block runs."""
        self._pending.append(pending)
        try:
            yield
        finally:
            self._pending.remove(pending)

    def due(self, last_seq: int) -> tuple[PendingCheckpoint, ...]:
        """Return the checkpoints whose rows are all in L0 once the rows up to ``last_seq`` are."""
        return tuple(pending for pending in self._pending if pending.through_seq <= last_seq)


def checkpoint_edit(due: tuple[PendingCheckpoint, ...]) -> Edit:
    """Return the edit that adds checkpoints.  It leaves out impossible ones: their callers get the error later."""

    def edit(manifest: Manifest, version: int) -> Manifest:
        for pending in due:
            try:
                manifest = pending.edit(manifest, version)
            except InvalidRequestError:
                continue
        return manifest

    return edit


def resolve_pending(due: tuple[PendingCheckpoint, ...], committed: Manifest) -> None:
    """Record which of the checkpoints a committed manifest has."""
    for pending in due:
        pending.created = committed.checkpoint(pending.id)


class Checkpointing:
    """Creates the checkpoints that callers request.

    Args:
        pipeline: knows the newest commit.
        manifest: gets the checkpoints.
        durability: tells when rows are in L0.
        pending: read by the flusher.
        options: the flush timeout.
        env: clock and ids.
        instruments: counts requests.
    """

    def __init__(
        self,
        pipeline: WritePipeline,
        manifest: WriterManifest,
        durability: DurabilityTracker,
        *,
        pending: PendingCheckpoints,
        options: DbOptions,
        env: Env,
        instruments: WriterInstruments,
    ) -> None:
        self._pipeline = pipeline
        self._manifest = manifest
        self._durability = durability
        self._pending = pending
        self._flush_timeout_s = options.checkpoint_flush_timeout_s
        self._env = env
        self._instruments = instruments

    async def create(
        self, request: CheckpointRequest, start_flush: Callable[[], None], is_stuck: Callable[[], bool]
    ) -> Checkpoint:
        """Create a checkpoint; see ``Db.checkpoint``.

        Args:
            request: the caller's arguments.
            start_flush: freezes the active memtable, if the checkpoint includes its rows.
            is_stuck: whether the flush waits for something that may never come: room in L0, or the store.
        """
        expire_s_after(self._env.clock.now_ms(), request.lifetime_ms)  # refuse an impossible lifetime before a flush
        pending = PendingCheckpoint(request, self._pipeline.committed_seq, self._env)
        self._instruments.checkpoint_requested()
        if request.scope is CheckpointScope.ALL and request.source is None:
            start_flush()
            await self._wait_for_flush(pending, is_stuck)
        created = pending.created
        if created is None:
            created = await self._create_now(pending, of_current=request.source is None)
        self._instruments.checkpoint_made()
        log.info(
            Event.CHECKPOINT_CREATED, checkpoint_id=str(created.id), manifest_id=created.manifest_id, name=created.name
        )
        return created

    async def _wait_for_flush(self, pending: PendingCheckpoint, is_stuck: Callable[[], bool]) -> None:
        """Let a flush create the checkpoint; return without it if the flush does not come to an end.

        With a WAL a stuck flush costs nothing: once the rows are in the WAL, the checkpoint includes them from there.
        """
        timeout_s, seq = self._flush_timeout_s, pending.through_seq
        has_wal = self._pipeline.buffers.wal is not None

        def is_blocked() -> bool:
            return is_stuck() and (not has_wal or self._durability.durable_seq >= seq)

        with anyio.move_on_after(timeout_s), self._pending.attach_pending(pending):
            await self._durability.wait_flushed(seq, is_blocked if timeout_s is None else None)
        if self._durability.flushed_seq < seq:
            log.warning(Event.CHECKPOINT_NOT_FLUSHED, checkpoint_id=str(pending.id), timeout_s=timeout_s)

    async def _create_now(self, pending: PendingCheckpoint, *, of_current: bool) -> Checkpoint:
        wal_id = self._durability.durable_wal_id

        def local(manifest: Manifest) -> Manifest:
            # If the checkpoint has landed already, write nothing: a version in which only the end of the WAL changes
            # would tell others that this writer has closed.
            if not of_current or manifest.checkpoint(pending.id) is not None:
                return manifest
            return with_wal_frontier(manifest, wal_id)

        committed = await self._manifest.commit(local, pending.edit)
        created = committed.checkpoint(pending.id)
        assert created is not None
        return created
