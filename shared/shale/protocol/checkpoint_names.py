"""A checkpoint by its id or by its name.

Names need not be unique.  What somebody names has to be one checkpoint all the same, so a name of several is refused;
one that is over gives way to one that is not.
"""

from uuid import UUID

from shale.errors import AmbiguousCheckpoint, CheckpointMissing, InvalidRequestError
from shale.types import Checkpoint, Manifest


def named_checkpoint(manifest: Manifest, wanted: UUID | str, now_ms: int, *, expired_too: bool = False) -> Checkpoint:
    """The checkpoint that is meant.

    Args:
        wanted: an id, or text: an id, or else a name.
        expired_too: whether one whose lifetime is over, and that nobody has collected yet, will do.

    Raises:
        CheckpointMissing: none is called so.
        AmbiguousCheckpoint: several are.
    """
    checkpoint_id = wanted if isinstance(wanted, UUID) else id_in(wanted)
    listed = manifest.checkpoint(checkpoint_id) if checkpoint_id is not None else None
    if listed is not None:
        found = [listed]
    else:
        found = [entry for entry in manifest.checkpoints if isinstance(wanted, str) and entry.name == wanted]
    live = [entry for entry in found if not entry.is_expired(now_ms)]
    if not live and expired_too:
        live = found
    if len(live) > 1:
        raise AmbiguousCheckpoint(str(wanted), [entry.id for entry in live])
    if not live:
        raise CheckpointMissing(wanted if checkpoint_id is None else checkpoint_id)
    return live[0]


def id_in(text: str) -> UUID | None:
    """The id that a text is; ``None`` if it can only be a name."""
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def checkpoint_reference(value: object, *, what: str = "checkpoint") -> UUID | str:
    """What can be an id or a name, as somebody outside gives it.

    Args:
        what: the option, for the message.

    Raises:
        InvalidRequestError: it can be neither.
    """
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidRequestError(f"{what}: {value!r} is neither the id of a checkpoint (a UUID) nor a name")
