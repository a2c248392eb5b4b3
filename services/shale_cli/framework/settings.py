"""The settings of commands: those that all daemons share, for the database and its store."""

from typing import ClassVar

from pydantic import Field

from shale.service.config.access.exposed_ports import ListeningPort
from shale.service.config.backup_section import BackupSection
from shale.service.config.sections import SegmentExtractorSection
from shale.service.config.settings import DaemonSettings


class CommandSettings(DaemonSettings):
    """The settings of a command."""

    ROLE: ClassVar[str] = "cli"

    backup: BackupSection = BackupSection()
    merge_operator: str | None = Field(
        default=None,
        description="The writer's merge operator, for commands that read or write rows: a name, or module:attribute.",
    )
    segment_extractor: SegmentExtractorSection | None = Field(
        default=None,
        description="The segment extractor of the writer, for commands that write to a database with segments.",
    )

    def listening_ports(self) -> list[ListeningPort]:
        """A command opens no port, also in the container of a daemon, which does."""
        return []
