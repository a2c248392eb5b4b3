"""Commands read the settings that all daemons share: where the database is, and how its store is reached."""

from typing import ClassVar

from shale.service.settings import DaemonSettings


class CommandSettings(DaemonSettings):
    """A command that looks at a database."""

    ROLE: ClassVar[str] = "cli"
