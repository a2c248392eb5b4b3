"""Objects that may be deleted, and the reasons that logs and saved plans show."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from shale.core.lazy_dataclass import dataclass
from shale.core.units import format_age
from shale.errors import InvalidRequestError
from shale.gc.options import Task


class Candidate(NamedTuple):
    """An object that a sweep may delete: id or ULID, key, size in bytes, creation time in milliseconds."""

    id: int
    key: str
    size: int
    made_ms: int


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object that a plan deletes, or a parent that it releases (then ``key`` is the parent's path)."""

    resource: Task
    key: str
    size: int
    age_ms: int
    why: str
    boundary: int | None = None

    @property
    def reason(self) -> str:
        """For example ``unreferenced, 3 h old, boundary 1204``."""
        parts = [self.why, f"{format_age(self.age_ms)} old"]
        if self.boundary is not None:
            parts.append(f"boundary {self.boundary}")
        return ", ".join(parts)


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """The objects that may be deleted, as of one time.

    Args:
        database: URL of the store and path of the database.
        manifest_id: id of the latest manifest when the plan was made.
        compactions_id: id of the latest compactions file then, if there was one.
        made_at_ms: when the plan was made, in milliseconds since 1970.
        min_ages_s: the requested tasks, each with its ``min_age`` in seconds.
    """

    database: str
    manifest_id: int
    compactions_id: int | None
    made_at_ms: int
    min_ages_s: Mapping[Task, float]
    objects: tuple[PlannedObject, ...]

    @property
    def size(self) -> int:
        """Size of all objects in bytes."""
        return sum(each.size for each in self.objects)

    def keys(self, task: Task) -> frozenset[str]:
        """Return the keys that one task may delete."""
        return frozenset(each.key for each in self.objects if each.resource is task)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
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
        """Read a plan from the values of ``as_json``.

        Raises:
            InvalidRequestError: the value is not a plan of a known version.
        """
        try:
            version = data["schema_version"]
            plan = (
                None
                if version != SCHEMA_VERSION
                else cls(
                    database=str(data["database"]),
                    manifest_id=int(data["manifest_id"]),
                    compactions_id=None if data["compactions_id"] is None else int(data["compactions_id"]),
                    made_at_ms=int(data["made_at_ms"]),
                    min_ages_s={Task(each["resource"]): float(each["min_age_s"]) for each in data["tasks"]},
                    objects=tuple(_object(each) for each in data["objects"]),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"this is no plan of the collector: {error!r}") from error
        if plan is None:
            raise InvalidRequestError(f"a plan of version {version} cannot be read")
        return plan


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
