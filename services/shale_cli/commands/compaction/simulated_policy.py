"""Policies of ``shale compaction simulate``: ``NAME`` or ``NAME:OPTION=VALUE,…``, with the options of the compactor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shale.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from shale.compaction.policies.scheduler import CompactionScheduler


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy and its text on the command line."""

    name: str
    policy: "CompactionScheduler"


def parse_policies(given: Sequence[str] | None, ttl: str | None) -> list[NamedPolicy]:
    """Parse policies; without any, return each policy with its defaults.

    Args:
        given: the texts of the command line.
        ttl: the lifetime of rows, the default of ``default_ttl`` in a time-window policy.

    Raises:
        InvalidRequestError: a policy is invalid; the message names all its errors.
    """
    from shale.service.config.scheduler_section import POLICY_NAMES

    return [_parse(text, ttl) for text in given or POLICY_NAMES]


def _parse(text: str, ttl: str | None) -> NamedPolicy:
    from pydantic import ValidationError

    from shale.errors import InvalidRequestError
    from shale.service.config.scheduler_section import SchedulerSection

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
