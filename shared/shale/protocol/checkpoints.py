"""Checkpoints: entries of the manifest that protect one of its versions, and all files it names, from GC.

The functions of the first half are pure.  Each returns ``None`` if nothing needs to be written, so applying it twice is
safe.  The second half commits.

Source: docs/reference/protocol.md 9.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from shale.core.suggestions import suggest
from shale.env import Env
from shale.errors import (
    AmbiguousCheckpoint,
    CheckpointExpired,
    CheckpointMissing,
    InvalidCheckpointLifetime,
    InvalidDbState,
    InvalidRequestError,
)
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest, ManifestId
from shale.types.writer_sign import challenged_epoch

_U32_MAX = 2**32 - 1
log = get_logger("checkpoints")


RESTORE_UNDO_PREFIX = "before-restore-"
"""The name of a checkpoint of the version that a restore in place has replaced begins with this."""


def replaced_versions(manifest: Manifest) -> tuple[int, ...]:
    """Return the versions that restores in place have replaced, as far as checkpoints keep them.

    A restored version may have lower sequence numbers than the one before it.
    """
    names = RESTORE_UNDO_PREFIX
    return tuple(each.manifest_id for each in manifest.checkpoints if (each.name or "").startswith(names))


def require_name(name: object) -> str | None:
    """Check the requested name of a checkpoint and return it.

    Raises:
        InvalidRequestError: not a text that can be stored, or a name that is reserved for checkpoints of writers.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise InvalidRequestError(f"name: {name!r} is not a text")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"name: {name!r} cannot be written as UTF-8") from error
    if Checkpoint(id=UUID(int=0), manifest_id=ManifestId(0), name=name).writer_epoch is not None:
        raise InvalidRequestError(
            f"name: {name!r} is reserved for a writer's own checkpoint, which the next writer removes"
        )
    if challenged_epoch(name) is not None:
        raise InvalidRequestError(
            f"name: {name!r} is reserved for the challenge of a standby, which the writer removes"
        )
    return name


def resolve_checkpoint(manifest: Manifest, wanted: UUID | str, now_ms: int, *, expired_too: bool = False) -> Checkpoint:
    """Return the checkpoint with this id or, if no id matches, with this name.

    Names need not be unique.  Expired checkpoints are ignored if a live one matches; several live ones are an error.

    Args:
        wanted: an id, or a text with an id or a name.
        expired_too: accept a checkpoint that has expired but is still listed.

    Raises:
        CheckpointMissing: none has this id or name; ``CheckpointExpired`` if only expired ones have it.
        AmbiguousCheckpoint: several have this name.
    """
    checkpoint_id = wanted if isinstance(wanted, UUID) else parse_checkpoint_id(wanted)
    listed = manifest.checkpoint(checkpoint_id) if checkpoint_id is not None else None
    if listed is not None:
        matches = [listed]
    else:
        matches = [entry for entry in manifest.checkpoints if isinstance(wanted, str) and entry.name == wanted]
    live = [entry for entry in matches if not entry.is_expired(now_ms)]
    if not live and expired_too:
        live = matches
    if len(live) > 1:
        raise AmbiguousCheckpoint(str(wanted), [entry.id for entry in live])
    if not live:
        missing = wanted if checkpoint_id is None else checkpoint_id
        if matches:
            raise CheckpointExpired(missing, max(entry.expire_s for entry in matches))
        names = [entry.name for entry in manifest.checkpoints if entry.name]
        raise CheckpointMissing(missing, suggest(str(missing), names))
    return live[0]


def parse_checkpoint_id(text: str) -> UUID | None:
    """Return the id in a text; ``None`` if it is not an id."""
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def require_checkpoint_reference(value: object, *, what: str = "checkpoint") -> UUID | str:
    """Check that a value can be an id or a name of a checkpoint, and return it.

    Args:
        what: the name of the option, for the error.

    Raises:
        InvalidRequestError: it can be neither.
    """
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidRequestError(f"{what}: {value!r} is neither the id of a checkpoint (a UUID) nor a name")


def expire_s_after(now_ms: int, lifetime_ms: int | None) -> int:
    """Return the second in which a lifetime that begins now ends; 0 (never) for ``None``.

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
        version: the id of the version that will be written, which the checkpoint pins.
        lifetime_ms: ``None`` never ends.

    Raises:
        InvalidDbState: the database is not initialised, or being destroyed.
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
        manifest_id=resolve_checkpoint(manifest, source, now_ms).manifest_id,
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
    """Set the expiry of a checkpoint to ``lifetime_ms`` from now.

    Raises:
        CheckpointMissing: it is not listed.
    """
    checkpoint = find_checkpoint(manifest, id)
    fresh = replace(checkpoint, expire_s=expire_s_after(now_ms, lifetime_ms))
    if fresh == checkpoint:
        return None
    return replace(manifest, checkpoints=tuple(fresh if entry.id == id else entry for entry in manifest.checkpoints))


def find_checkpoint(manifest: Manifest, id: UUID) -> Checkpoint:  # noqa: A002 - the field's name
    """Return a listed checkpoint, expired or not.

    Raises:
        CheckpointMissing: it is not listed.
    """
    checkpoint = manifest.checkpoint(id)
    if checkpoint is None:
        raise CheckpointMissing(id)
    return checkpoint


def delete_checkpoints(manifest: Manifest, ids: Iterable[UUID]) -> Manifest | None:
    """Remove checkpoints; ids that are not listed are ignored."""
    removed = frozenset(ids)
    return _keep(manifest, tuple(entry for entry in manifest.checkpoints if entry.id not in removed))


def expire_checkpoints(manifest: Manifest, now_ms: int) -> Manifest | None:
    """Remove every expired checkpoint."""
    return _keep(manifest, tuple(entry for entry in manifest.checkpoints if not entry.is_expired(now_ms)))


def list_checkpoints(manifest: Manifest, name: str | None = None) -> list[Checkpoint]:
    """Return all checkpoints, or those with this name; ``""`` selects the ones without a name."""
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

    The id is drawn once, so an attempt that succeeded although its response was lost is recognised.

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
    if is_ours:  # else it was listed before, and older versions may be gone for other reasons
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
        The ids that were listed.
    """
    removed = tuple(ids)
    found: tuple[UUID, ...] = ()

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal found
        # After a conflict, the current version may be our own write: what it removed was listed.
        listed = {entry.id for entry in current.value.checkpoints} | set(found)
        found = tuple(checkpoint_id for checkpoint_id in removed if checkpoint_id in listed)
        return delete_checkpoints(current.value, removed)

    committed = await stored.apply(change)
    for checkpoint_id in found:
        log.info(Event.CHECKPOINT_DELETED, checkpoint_id=str(checkpoint_id), manifest_id=committed.id)
    return found


async def remove_expired_checkpoints(stored: StoredManifest, now_ms: int) -> tuple[UUID, ...]:
    """Commit the removal of all checkpoints that have expired by ``now_ms`` and return their ids."""
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
    """Remove the checkpoint again if its version was written after the database had been destroyed.

    Raises:
        InvalidDbState: it was; the version stays, and destroying the database again removes it.
    """
    store = stored.store
    if not await store.has_lost_history(version):
        return
    await stored.apply(lambda current: delete_checkpoints(current.value, [checkpoint_id]))
    left = store.namespace.key(version)
    raise InvalidDbState(f"the database was destroyed before the checkpoint was written; destroy it again: {left}")


def _keep(manifest: Manifest, kept: tuple[Checkpoint, ...]) -> Manifest | None:
    return None if len(kept) == len(manifest.checkpoints) else replace(manifest, checkpoints=kept)
