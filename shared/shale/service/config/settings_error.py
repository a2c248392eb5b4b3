"""The error of invalid settings, apart from the settings, which import pydantic."""

from collections.abc import Sequence

from shale.errors import InvalidRequestError


class SettingsError(InvalidRequestError):
    """Invalid settings; ``problems`` has one message per error."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
