"""``admin.destroy``: a database at its end, now or after a grace (docs/protocol.md 8.8)."""

from dataclasses import dataclass
from enum import StrEnum

from shale.admin.place import AdminPlace
from shale.errors import InvalidRequestError
from shale.garbage.destroy import Destroyed, DestroyTarget, OnDeleted, destroy, plan_destroy
from shale.garbage.destroy_plan import DestroyPlan
from shale.garbage.soft_destroy import destroy_later
from shale.protocol.markers import DestroyedMark, read_destroyed_mark


class DestroyMode(StrEnum):
    """When the objects go."""

    HARD = "hard"
    """Now."""
    SOFT = "soft"
    """When a collector finds that nobody needs them any more and the grace is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destruction:
    """What was done, or would be.

    Args:
        plan: what there was before, and what stands in the way.
        is_done: it was done, and not only told.
        mark: the marker of a soft destroy, also of an earlier one.
        destroyed: what a hard destroy has deleted.
    """

    mode: DestroyMode
    plan: DestroyPlan
    is_done: bool = False
    mark: DestroyedMark | None = None
    destroyed: Destroyed | None = None


async def destroy_at(
    place: AdminPlace, mode: DestroyMode | str, *, confirm: bool, force: bool, on_deleted: OnDeleted | None
) -> Destruction:
    """See ``Admin.destroy``."""
    mode = _mode(mode)
    if force and mode is DestroyMode.SOFT:
        raise InvalidRequestError("force belongs to a hard destroy: a soft one waits until nothing stands in the way")
    target = DestroyTarget(
        store=place.stores.main, root=place.root, env=place.env, metrics=place.metrics, wal_store=place.stores.wal
    )
    plan = await plan_destroy(target)
    if confirm and mode is DestroyMode.SOFT:
        return Destruction(mode=mode, plan=plan, is_done=True, mark=await destroy_later(target))
    mark = await read_destroyed_mark(target.store, target.root)
    done = await destroy(target, force=force, on_deleted=on_deleted) if confirm else None
    return Destruction(mode=mode, plan=plan, is_done=confirm, mark=mark, destroyed=done)


def _mode(mode: DestroyMode | str) -> DestroyMode:
    try:
        return DestroyMode(mode)
    except ValueError as error:
        raise InvalidRequestError(f"{mode!r} is no way to destroy a database: soft or hard") from error
