"""Checkpoints: entries of the manifest that keep one of its versions, and all it refers to, from being collected.

The first half changes values only; each function gives ``None`` if nothing needs to be written, which also makes it
safe to apply twice.  The second half commits.

Source: docs/protocol.md 9.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from shale.env import Env
from shale.errors import CheckpointMissing, InvalidCheckpointLifetime, InvalidDbState, InvalidRequestError
from shale.protocol.checkpoint_names import named_checkpoint
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest, ManifestId

_U32_MAX = 2**32 - 1
_WRITERS = re.compile(r"writer:(\d+)")
log = get_logger("checkpoints")


def writer_epoch_of(checkpoint: Checkpoint) -> int | None:
    """The epoch of the writer that keeps what it serves under this one; ``None`` for everybody else's.

    Its name tells: manifests have no other place for that (docs/protocol.md 9.1).
    """
    match = _WRITERS.fullmatch(checkpoint.name or "")
    return None if match is None else int(match[1])


def require_name(name: object) -> str | None:
    """The name that somebody wants for a checkpoint.

    Raises:
        InvalidRequestError: no text that can be stored, or a name under which writers keep, and remove, their own.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise InvalidRequestError(f"name: {name!r} is no text")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"name: {name!r} cannot be written as UTF-8") from error
    if _WRITERS.fullmatch(name) is not None:
        raise InvalidRequestError(
            f"name: {name!r} is the name of a writer's own checkpoint, which the next writer removes"
        )
    return name


def expire_s_after(now_ms: int, lifetime_ms: int | None) -> int:
    """Whole seconds at which a lifetime that begins now is over; 0, never, for ``None``.

    Raises:
        InvalidCheckpointLifetime: not positive, or beyond the 32 bits it is stored in.
    """
    if lifetime_ms is None:
        return 0
    expire_s = (now_ms + lifetime_ms) // 1000
    if lifetime_ms <= 0 or not 0 < expire_s <= _U32_MAX:
        raise InvalidCheckpointLifetime(f"a checkpoint cannot live for {lifetime_ms} ms")
    return expire_s


def add_checkpoint(
    manifest: Manifest,
    version: int,
    *,
    id: UUID,  # noqa: A002 - the field's name
    now_ms: int,
    lifetime_ms: int | None,
    name: str | None = None,
) -> Manifest | None:
    """Add a checkpoint of the state being written.

    Args:
        version: the id under which the result is going to be written; the checkpoint pins exactly that.
        lifetime_ms: ``None`` is for ever.

    Raises:
        InvalidDbState: the database is half built or being destroyed.
    """
    if manifest.checkpoint(id) is not None:
        return None
    if not manifest.initialized:
        raise InvalidDbState("the database is not initialised, so it has no state to pin")
    entry = Checkpoint(
        id=id,
        manifest_id=ManifestId(version),
        expire_s=expire_s_after(now_ms, lifetime_ms),
        create_s=now_ms // 1000,
        name=name,
    )
    return replace(manifest, checkpoints=(*manifest.checkpoints, entry))


def add_checkpoint_from(
    manifest: Manifest,
    source: UUID | str,
    *,
    id: UUID,  # noqa: A002 - the field's name
    now_ms: int,
    lifetime_ms: int | None,
    name: str | None = None,
) -> Manifest | None:
    """Add a checkpoint of the version that another one pins.

    Args:
        source: the id or the name of the other one.

    Raises:
        CheckpointMissing: the source is not listed, or has expired.
        AmbiguousCheckpoint: several have that name.
    """
    if manifest.checkpoint(id) is not None:
        return None
    entry = Checkpoint(
        id=id,
        manifest_id=named_checkpoint(manifest, source, now_ms).manifest_id,
        expire_s=expire_s_after(now_ms, lifetime_ms),
        create_s=now_ms // 1000,
        name=name,
    )
    return replace(manifest, checkpoints=(*manifest.checkpoints, entry))


def refresh_checkpoint(
    manifest: Manifest,
    id: UUID,  # noqa: A002 - the field's name
    *,
    now_ms: int,
    lifetime_ms: int | None,
) -> Manifest | None:
    """Let a checkpoint live for another ``lifetime_ms`` from now.

    Raises:
        CheckpointMissing: it is not listed.
    """
    checkpoint = find_checkpoint(manifest, id)
    fresh = replace(checkpoint, expire_s=expire_s_after(now_ms, lifetime_ms))
    if fresh == checkpoint:
        return None
    return replace(manifest, checkpoints=tuple(fresh if entry.id == id else entry for entry in manifest.checkpoints))


def find_checkpoint(manifest: Manifest, id: UUID) -> Checkpoint:  # noqa: A002 - the field's name
    """A checkpoint of the list, expired or not.

    Raises:
        CheckpointMissing: it is not listed.
    """
    checkpoint = manifest.checkpoint(id)
    if checkpoint is None:
        raise CheckpointMissing(id)
    return checkpoint


def delete_checkpoints(manifest: Manifest, ids: Iterable[UUID]) -> Manifest | None:
    """Remove checkpoints; those that are not listed are removed already."""
    doomed = frozenset(ids)
    return _keep(manifest, tuple(entry for entry in manifest.checkpoints if entry.id not in doomed))


def expire_checkpoints(manifest: Manifest, now_ms: int) -> Manifest | None:
    """Remove every checkpoint whose lifetime is over."""
    return _keep(manifest, tuple(entry for entry in manifest.checkpoints if not entry.is_expired(now_ms)))


def list_checkpoints(manifest: Manifest, name: str | None = None) -> list[Checkpoint]:
    """All checkpoints, or those with this name; ``""`` asks for the ones without a name."""
    return [entry for entry in manifest.checkpoints if name is None or (entry.name or "") == name]


async def create_checkpoint(
    stored: StoredManifest,
    env: Env,
    *,
    lifetime_ms: int | None,
    name: str | None = None,
    source: UUID | str | None = None,
    id: UUID | None = None,  # noqa: A002 - the field's name
) -> Checkpoint:
    """Commit a checkpoint of the current state, or of what ``source`` pins.

    The id is drawn once, so an attempt that landed although its answer was lost is recognised.

    Raises:
        CheckpointMissing, AmbiguousCheckpoint: see ``add_checkpoint_from``.
        InvalidDbState: see ``add_checkpoint``; also if the database was destroyed before this was written.
        InvalidCheckpointLifetime: see ``add_checkpoint``.
    """
    checkpoint_id = id if id is not None else env.ids.uuid()
    is_ours = False

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal is_ours
        now_ms = env.clock.now_ms()
        if source is not None:
            changed = add_checkpoint_from(
                current.value, source, id=checkpoint_id, now_ms=now_ms, lifetime_ms=lifetime_ms, name=name
            )
        else:
            changed = add_checkpoint(
                current.value, current.id + 1, id=checkpoint_id, now_ms=now_ms, lifetime_ms=lifetime_ms, name=name
            )
        is_ours = is_ours or changed is not None
        return changed

    committed = await stored.apply(change)
    if is_ours:  # or it was listed long ago, and what came before its version may be gone for other reasons
        await _require_not_destroyed(stored, committed.id, checkpoint_id)
    checkpoint = committed.value.checkpoint(checkpoint_id)
    assert checkpoint is not None
    log.info(Event.CHECKPOINT_CREATED, checkpoint_id=str(checkpoint_id), manifest_id=checkpoint.manifest_id, name=name)
    return checkpoint


async def renew_checkpoint(
    stored: StoredManifest,
    env: Env,
    id: UUID,  # noqa: A002 - the field's name
    *,
    lifetime_ms: int | None,
) -> Checkpoint:
    """Commit a new lifetime for a checkpoint.

    Raises:
        CheckpointMissing: it is not listed.
    """

    def change(current: Versioned[Manifest]) -> Manifest | None:
        return refresh_checkpoint(current.value, id, now_ms=env.clock.now_ms(), lifetime_ms=lifetime_ms)

    committed = await stored.apply(change)
    checkpoint = committed.value.checkpoint(id)
    assert checkpoint is not None
    return checkpoint


async def release_checkpoints(stored: StoredManifest, ids: Iterable[UUID]) -> tuple[UUID, ...]:
    """Commit the removal of checkpoints; nothing is written if none is listed.

    Returns:
        Those that were listed.
    """
    doomed = tuple(ids)
    found: tuple[UUID, ...] = ()

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal found
        # After a conflict our own write may be what is met: what it removed was there.
        listed = {entry.id for entry in current.value.checkpoints} | set(found)
        found = tuple(checkpoint_id for checkpoint_id in doomed if checkpoint_id in listed)
        return delete_checkpoints(current.value, doomed)

    committed = await stored.apply(change)
    for checkpoint_id in found:
        log.info(Event.CHECKPOINT_DELETED, checkpoint_id=str(checkpoint_id), manifest_id=committed.id)
    return found


async def remove_expired_checkpoints(stored: StoredManifest, now_ms: int) -> tuple[UUID, ...]:
    """Commit the removal of everything that has expired by ``now_ms`` and return its ids."""
    expired: tuple[Checkpoint, ...] = ()

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal expired
        expired = tuple(entry for entry in current.value.checkpoints if entry.is_expired(now_ms))
        return expire_checkpoints(current.value, now_ms)

    await stored.apply(change)
    for entry in expired:
        log.info(Event.CHECKPOINT_EXPIRED, checkpoint_id=str(entry.id), manifest_id=entry.manifest_id, name=entry.name)
    return tuple(entry.id for entry in expired)


async def _require_not_destroyed(stored: StoredManifest, version: int, checkpoint_id: UUID) -> None:
    """A version that was written after the database had been destroyed keeps nothing: its checkpoint is taken back.

    Raises:
        InvalidDbState: it is so; the version stays, and destroying the database again removes it.
    """
    store = stored.store
    if not await store.begins_at(version):
        return
    await stored.apply(lambda current: delete_checkpoints(current.value, [checkpoint_id]))
    left = store.namespace.key(version)
    raise InvalidDbState(f"the database was destroyed before the checkpoint was written; destroy it again: {left}")


def _keep(manifest: Manifest, kept: tuple[Checkpoint, ...]) -> Manifest | None:
    return None if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)
