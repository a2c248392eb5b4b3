"""``scheduler_options``: which policy decides what is compacted, and its options (docs/operations.md 16).

The options lie beside each other under SlateDB's names where it has one, so that a file written for SlateDB is read as
it is.  One that the chosen policy does not take is refused: it would be a wish that nobody hears.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from shale.compaction.leveled import Leveled
from shale.compaction.scheduler import CompactionScheduler
from shale.compaction.size_tiered import SizeTiered
from shale.compaction.time_window import TimeWindow
from shale.errors import InvalidRequestError
from shale.service.sections import Bytes, Seconds, Section

PolicyName = Literal["size_tiered", "leveled", "time_window"]
POLICY_NAMES: tuple[PolicyName, ...] = ("size_tiered", "leveled", "time_window")

_SOURCES = frozenset({"min_compaction_sources", "max_compaction_sources"})
_TAKES: dict[PolicyName, frozenset[str]] = {
    "size_tiered": _SOURCES | {"include_size_threshold"},
    "leveled": _SOURCES | {"level_base_bytes", "level_size_multiplier", "max_extra_runs"},
    "time_window": _SOURCES | {"include_size_threshold", "window", "max_windows", "default_ttl"},
}
_SIZE_TIERED, _LEVELED, _TIME_WINDOW = SizeTiered(), Leveled(), TimeWindow()


class SchedulerSection(Section):
    """The policy and its options."""

    policy: PolicyName = Field(default="size_tiered", description="What decides which compactions are worth it.")
    min_compaction_sources: int = Field(
        default=_SIZE_TIERED.min_compaction_sources, description="L0s, or similar runs, that start a merge."
    )
    max_compaction_sources: int = Field(
        default=_SIZE_TIERED.max_compaction_sources, description="The most sources of one merge."
    )
    include_size_threshold: float = Field(
        default=_SIZE_TIERED.include_size_threshold,
        description="size_tiered, time_window: runs are similar up to this factor.",
    )
    level_base_bytes: Bytes = Field(
        default=_LEVELED.level_base_bytes, description="leveled: the largest run of the first level."
    )
    level_size_multiplier: float = Field(
        default=_LEVELED.level_size_multiplier, description="leveled: how much larger the next level is."
    )
    max_extra_runs: int = Field(
        default=_LEVELED.max_extra_runs, description="leveled: runs beyond one per level at which L0s wait."
    )
    window: Seconds = Field(default=_TIME_WINDOW.window_s, description="time_window: how long a window is.")
    max_windows: int = Field(default=_TIME_WINDOW.max_windows, description="time_window: how many stay apart.")
    default_ttl: Seconds | None = Field(
        default=_TIME_WINDOW.default_ttl_s, description="time_window: when rows expire; none: no rewrite for age."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "SchedulerSection":
        problems = [*self._unheard()]
        try:
            self.scheduler()
        except InvalidRequestError as error:
            problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def scheduler(self) -> CompactionScheduler:
        """The policy.

        Raises:
            InvalidRequestError: its options are out of range or contradict each other; names all of them.
        """
        match self.policy:
            case "size_tiered":
                return SizeTiered(
                    min_compaction_sources=self.min_compaction_sources,
                    max_compaction_sources=self.max_compaction_sources,
                    include_size_threshold=self.include_size_threshold,
                )
            case "leveled":
                return Leveled(
                    min_compaction_sources=self.min_compaction_sources,
                    max_compaction_sources=self.max_compaction_sources,
                    level_base_bytes=self.level_base_bytes,
                    level_size_multiplier=self.level_size_multiplier,
                    max_extra_runs=self.max_extra_runs,
                )
            case "time_window":
                return TimeWindow(
                    min_compaction_sources=self.min_compaction_sources,
                    max_compaction_sources=self.max_compaction_sources,
                    include_size_threshold=self.include_size_threshold,
                    window_s=self.window,
                    max_windows=self.max_windows,
                    default_ttl_s=self.default_ttl,
                )

    def _unheard(self) -> Iterator[str]:
        """Options that were given, but not to this policy."""
        for name in sorted(self.model_fields_set - _TAKES[self.policy] - {"policy"}):
            takers = " and ".join(policy for policy in POLICY_NAMES if name in _TAKES[policy])
            yield f"{name} is an option of {takers}, and the policy is {self.policy}"


def takes(policy: PolicyName, option: str) -> bool:
    """Whether a policy has this option."""
    return option in _TAKES[policy]
