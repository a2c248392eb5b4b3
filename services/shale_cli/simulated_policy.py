"""Policies of ``shale compaction simulate``: ``NAME`` or ``NAME:OPTION=VALUE,…``, with the options of the compactor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shale.compaction.scheduler import CompactionScheduler


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, and what it was called on the command line."""

    name: str
    policy: "CompactionScheduler"


def parse_policies(given: Sequence[str] | None, ttl: str | None) -> list[NamedPolicy]:
    """Read policies; without any, each once with its defaults.

    Args:
        ttl: lifetime of the rows; a time-window policy that names no ``default_ttl`` takes it.

    Raises:
        InvalidRequestError: names everything that is wrong with one of them.
    """
    from shale.service.scheduler_section import POLICY_NAMES

    return [_parse(text, ttl) for text in given or POLICY_NAMES]


def _parse(text: str, ttl: str | None) -> NamedPolicy:
    from pydantic import ValidationError

    from shale.errors import InvalidRequestError
    from shale.service.scheduler_section import SchedulerSection

    name, _, options = text.partition(":")
    values = {"policy": name}
    for assignment in filter(None, options.split(",")):
        option, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidRequestError(f"--policy {text}: {assignment!r} is not OPTION=VALUE")
        values[option] = value
    if name == "time_window" and ttl is not None:
        values.setdefault("default_ttl", ttl)
    try:
        return NamedPolicy(text, SchedulerSection.model_validate(values).scheduler())
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"]
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        message = "; ".join(problem.replace("Value error, ", "") for problem in problems)
        raise InvalidRequestError(f"--policy {text}: {message}") from None
