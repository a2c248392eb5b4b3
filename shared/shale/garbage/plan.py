"""A plan of the collector that is kept: shown first, saved as JSON, carried out later if nothing speaks against it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from shale.errors import InvalidDeletion, InvalidRequestError
from shale.garbage.database import Database
from shale.garbage.doomed import PlannedObject
from shale.garbage.options import Task

SCHEMA_VERSION = 1
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """What may be deleted, as of one moment.

    Args:
        database: URL of the store and the path in it.
        manifest_id: the newest manifest when the plan was made.
        compactions_id: the newest compactions file then, if there was one.
        min_ages_s: the tasks that were asked for, with their ``min_age``.
    """

    database: str
    manifest_id: int
    compactions_id: int | None
    made_at_ms: int
    min_ages_s: Mapping[Task, float]
    objects: tuple[PlannedObject, ...]

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(each.size for each in self.objects)

    def keys(self, task: Task) -> frozenset[str]:
        """What one task may delete."""
        return frozenset(each.key for each in self.objects if each.resource is task)

    def as_json(self) -> dict[str, Any]:
        """The plan as it is saved."""
        return {
            "schema_version": SCHEMA_VERSION,
            "database": self.database,
            "manifest_id": self.manifest_id,
            "compactions_id": self.compactions_id,
            "made_at_ms": self.made_at_ms,
            "tasks": [{"resource": task.value, "min_age_s": age_s} for task, age_s in self.min_ages_s.items()],
            "count": len(self.objects),
            "size": self.size,
            "objects": [
                {
                    "resource": each.resource.value,
                    "key": each.key,
                    "size": each.size,
                    "age_ms": each.age_ms,
                    "why": each.why,
                    "boundary": each.boundary,
                    "reason": each.reason,
                }
                for each in self.objects
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what ``as_json`` gave.

        Raises:
            InvalidRequestError: it is something else.
        """
        try:
            if data["schema_version"] != SCHEMA_VERSION:
                raise InvalidRequestError(f"a plan of version {data['schema_version']} cannot be read")
            return cls(
                database=str(data["database"]),
                manifest_id=int(data["manifest_id"]),
                compactions_id=None if data["compactions_id"] is None else int(data["compactions_id"]),
                made_at_ms=int(data["made_at_ms"]),
                min_ages_s={Task(each["resource"]): float(each["min_age_s"]) for each in data["tasks"]},
                objects=tuple(_object(each) for each in data["objects"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"this is no plan of the collector: {error!r}") from error


async def require_still_unneeded(plan: GcPlan, fresh: GcPlan, database: Database) -> None:
    """Return if everything in a plan that still exists would be planned again.

    Args:
        fresh: a plan made now, for the same tasks.

    Raises:
        InvalidDeletion: it is not so, or the plan is of another database.
    """
    if plan.database != fresh.database:
        raise InvalidDeletion(f"the plan is of {plan.database}, not of {fresh.database}")
    planned_now = {each.key for each in fresh.objects}
    needed: list[str] = []
    for task in plan.min_ages_s:
        missing = plan.keys(task) - planned_now
        if missing and task is not Task.DETACH:
            needed += [key async for key in database.existing(task, missing)]
    if needed:
        named = ", ".join(needed[:_NAMED_MAX])
        more = f" and {len(needed) - _NAMED_MAX} more" if len(needed) > _NAMED_MAX else ""
        raise InvalidDeletion(
            f"since the plan was made (manifest {plan.manifest_id}, now {fresh.manifest_id}) these are needed again: "
            f"{named}{more}; nothing was deleted, make a new plan"
        )


def _object(data: Mapping[str, Any]) -> PlannedObject:
    boundary = data["boundary"]
    return PlannedObject(
        Task(data["resource"]),
        str(data["key"]),
        int(data["size"]),
        int(data["age_ms"]),
        str(data["why"]),
        None if boundary is None else int(boundary),
    )
