"""``scheduler_options``: the compaction policy and its options (docs/how-to/compaction-policies.md).

Options of all policies share one section and have SlateDB's names where it has one, so that files written for SlateDB
work unchanged.  An option that the chosen policy does not take is an error, because it would have no effect.
"""

from collections.abc import Callable, Iterator
from typing import Literal

from pydantic import Field, model_validator

from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.policies.time_window import TimeWindow
from shale.errors import InvalidRequestError
from shale.service.config.section import Section
from shale.service.config.sections import Bytes, Seconds

PolicyName = Literal["size_tiered", "leveled", "time_window"]
POLICY_NAMES: tuple[PolicyName, ...] = ("size_tiered", "leveled", "time_window")

_SOURCES = frozenset({"min_compaction_sources", "max_compaction_sources"})
_TAKES: dict[PolicyName, frozenset[str]] = {
    "size_tiered": _SOURCES | {"include_size_threshold"},
    "leveled": _SOURCES | {"level_base_bytes", "level_size_multiplier", "max_extra_runs", "max_space_amplification"},
    "time_window": _SOURCES | {"include_size_threshold", "window", "max_windows", "default_ttl"},
}
_CLASSES: dict[PolicyName, Callable[..., CompactionScheduler]] = {
    "size_tiered": SizeTiered,
    "leveled": Leveled,
    "time_window": TimeWindow,
}
_PARAMETERS = {"window": "window_s", "default_ttl": "default_ttl_s"}
"""Parameters of the policies that have another name than the option."""
_SIZE_TIERED, _LEVELED, _TIME_WINDOW = SizeTiered(), Leveled(), TimeWindow()


class SchedulerSection(Section):
    """The policy and its options."""

    policy: PolicyName = Field(default="size_tiered", description="The policy that chooses compactions.")
    min_compaction_sources: int = Field(
        default=_SIZE_TIERED.min_compaction_sources,
        description="The number of L0s, or of runs of similar size, that starts a compaction.",
    )
    max_compaction_sources: int = Field(
        default=_SIZE_TIERED.max_compaction_sources, description="The most sources of one compaction."
    )
    include_size_threshold: float = Field(
        default=_SIZE_TIERED.include_size_threshold,
        description="size_tiered, time_window: runs within this size factor count as similar.",
    )
    level_base_bytes: Bytes = Field(
        default=_LEVELED.level_base_bytes, description="leveled: the size limit of the first level."
    )
    level_size_multiplier: float = Field(
        default=_LEVELED.level_size_multiplier,
        description="leveled: the size of a level relative to the one before it.",
    )
    max_extra_runs: int = Field(
        default=_LEVELED.max_extra_runs, description="leveled: with this many runs beyond one per level, L0s wait."
    )
    max_space_amplification: float | None = Field(
        default=_LEVELED.max_space_amplification,
        description="leveled: all runs are merged when they take more than this multiple of the oldest one.",
    )
    window: Seconds = Field(default=_TIME_WINDOW.window_s, description="time_window: the length of a window.")
    max_windows: int = Field(
        default=_TIME_WINDOW.max_windows, description="time_window: the number of windows that are kept separate."
    )
    default_ttl: Seconds | None = Field(
        default=_TIME_WINDOW.default_ttl_s,
        description="time_window: the lifetime of rows; none: no rewrites to drop expired rows.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "SchedulerSection":
        problems = [*self._unused_options()]
        try:
            self.scheduler()
        except InvalidRequestError as error:
            problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def scheduler(self) -> CompactionScheduler:
        """Return the compaction policy.

        Raises:
            InvalidRequestError: options are out of range or contradict each other; the message names all of them.
        """
        options = {_PARAMETERS.get(name, name): getattr(self, name) for name in _TAKES[self.policy]}
        return _CLASSES[self.policy](**options)

    def _unused_options(self) -> Iterator[str]:
        """Yield a message for each given option that belongs to another policy."""
        for name in sorted(self.model_fields_set - _TAKES[self.policy] - {"policy"}):
            takers = " and ".join(policy for policy in POLICY_NAMES if name in _TAKES[policy])
            yield f"{name} is an option of {takers}, and the policy is {self.policy}"


def takes(policy: PolicyName, option: str) -> bool:
    """Return whether a policy takes this option."""
    return option in _TAKES[policy]
