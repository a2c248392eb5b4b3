"""The settings of memory, and how settings that are not given follow from the limit (docs/how-to/operate/sizing.md)."""

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, Field

from shale.core.lazy_dataclass import dataclass
from shale.core.memory_plan import MemoryShare, divide_memory, needed_bytes, shown_sum
from shale.core.units import format_size
from shale.errors import InvalidRequestError
from shale.service.config.section import Section
from shale.service.config.sections import Bytes
from shale.service.memory.container import available_memory

_PART_OF_CONTAINER = 0.7

M = TypeVar("M", bound=BaseModel)
MemoryShares: TypeAlias = tuple[MemoryShare, ...]


class MemorySection(Section):
    """How much memory the process may take."""

    limit: Bytes | None = Field(
        default=None,
        gt=0,
        description="Memory of the whole process: at this limit caches are small and writes are refused. Sizes, and "
        "numbers of connections, that are not set follow from it. none: 70 % of the container's limit, or of the "
        "machine's memory.",
    )
    response_bytes: Bytes = Field(
        default=256 << 20,
        gt=0,
        description="Memory for responses that clients have not read yet, and for what scans read ahead.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The memory of a process; ``problem``: why its settings do not fit into it, or ``None``."""

    limit_bytes: int
    problem: str | None


def plan_memory(settings: M, section: MemorySection, shares: MemoryShares) -> tuple[M, MemoryPlan]:
    """Return the settings with sizes that fit into the memory, where they were not given.

    Args:
        settings: as loaded.
        section: its section of memory.
        shares: the settings that bound its parts.

    Raises:
        InvalidRequestError: the sizes that were given do not fit into the ``memory.limit`` that was given.
    """
    limit_bytes, source = section.limit, "memory.limit"
    if limit_bytes is None:
        available = available_memory()
        limit_bytes = int(available.size_bytes * _PART_OF_CONTAINER)
        source = f"70 % of the {format_size(available.size_bytes)} of {available.source}"
    names = [name for share in shares for name in (share.name, *(size.name for size in share.bounds))]
    given = {name: size for name in names if (size := _given(settings, name)) is not None}
    derived = divide_memory(limit_bytes, shares, given)
    problem = None
    if shares and needed_bytes(shares, {**given, **derived}) > limit_bytes:
        if section.limit is None:  # few connections would not make the sizes fit, and the daemon starts
            derived |= _default_numbers(shares, given)
        problem = (
            f"memory: the settings need more than {format_size(limit_bytes)} ({source}): "
            f"{shown_sum(shares, {**given, **derived})}; lower them, or raise the limit"
        )
        if section.limit is not None:
            raise InvalidRequestError(problem)
    return with_values(settings, derived), MemoryPlan(limit_bytes=limit_bytes, problem=problem)


def _default_numbers(shares: MemoryShares, given: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of things where memory is not scarce, unless they are given."""
    numbers = {share.name: share.default for share in shares if share.counts}
    numbers |= {size.name: size.default for share in shares if share.counts for size in share.bounds}
    return {name: number for name, number in numbers.items() if name not in given}


def with_values(settings: M, values: Mapping[str, object]) -> M:
    """Return the settings with other values, by dotted name."""
    here = {name: value for name, value in values.items() if "." not in name}
    for section_name in {name.partition(".")[0] for name in values if "." in name}:
        below = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{section_name}.")}
        here[section_name] = with_values(getattr(settings, section_name), below)
    # ``model_copy`` notes the values as given, which a later look at the origin of settings must not see.
    return settings.model_copy(update=here) if here else settings


def _given(settings: BaseModel, name: str) -> int | None:
    """Return the value of a setting if it was given, and is a size."""
    first, _, rest = name.partition(".")
    if rest:
        section = getattr(settings, first)
        return _given(section, rest) if isinstance(section, BaseModel) else None
    value = getattr(settings, first)
    return value if first in settings.model_fields_set and isinstance(value, int) else None
