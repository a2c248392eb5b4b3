"""``admin.destroy``: destroy a database at once or after a grace period (docs/reference/protocol.md 8.8)."""

from dataclasses import replace
from enum import StrEnum

from shale.admin.context import AdminContext
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.gc.destroy_plan import DestroyPlan
from shale.gc.hard_destroy import DestroyTarget, HardDestroyResult, OnDeleted, destroy, plan_destroy
from shale.gc.soft_destroy import destroy_later
from shale.protocol.markers import DestroyedMark, read_destroyed_mark


class DestroyMode(StrEnum):
    """When the objects are deleted."""

    HARD = "hard"
    """At once."""
    SOFT = "soft"
    """By GC, after the grace period and once there is no checkpoint left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyResult:
    """The plan or the result of a destroy.

    Args:
        mode: hard or soft.
        plan: the objects before, and the obstacles.
        is_done: the destroy was executed, not only planned.
        mark: the marker of a soft destroy, also of an earlier one.
        destroyed: the objects that a hard destroy deleted.
    """

    mode: DestroyMode
    plan: DestroyPlan
    is_done: bool = False
    mark: DestroyedMark | None = None
    destroyed: HardDestroyResult | None = None


async def destroy_database(
    place: AdminContext, mode: DestroyMode | str, *, confirm: bool, force: bool, on_deleted: OnDeleted | None
) -> DestroyResult:
    """See ``Admin.destroy``."""
    mode = _mode(mode)
    if force and mode is DestroyMode.SOFT:
        raise InvalidRequestError("force is only for a hard destroy: a soft one waits until there are no obstacles")
    target = destroy_target(place)
    plan = await plan_destroy(target)
    if confirm and mode is DestroyMode.SOFT:
        return DestroyResult(mode=mode, plan=plan, is_done=True, mark=await destroy_later(target))
    mark = await read_destroyed_mark(target.store, target.root)
    done = await destroy(target, force=force, on_deleted=on_deleted) if confirm else None
    return DestroyResult(mode=mode, plan=plan, is_done=confirm, mark=mark, destroyed=done)


def destroy_target(place: AdminContext) -> DestroyTarget:
    """Return the database of an ``Admin``, to destroy it or to read whether it is being destroyed."""
    stores = place.stores
    target = DestroyTarget(store=stores.main, root=place.root, env=place.env, metrics=place.metrics)
    return replace(target, wal_store=stores.wal, manifest_write_version=stores.manifest_write_version)


def _mode(mode: DestroyMode | str) -> DestroyMode:
    try:
        return DestroyMode(mode)
    except ValueError as error:
        raise InvalidRequestError(f"{mode!r} is no destroy mode: use soft or hard") from error
