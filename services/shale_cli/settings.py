"""Commands read the settings that all daemons share: where the database is, and how its store is reached."""

from typing import ClassVar

from pydantic import Field

from shale.service.sections import SegmentExtractorSection
from shale.service.settings import DaemonSettings


class CommandSettings(DaemonSettings):
    """A command that looks at a database."""

    ROLE: ClassVar[str] = "cli"

    merge_operator: str | None = Field(
        default=None, description="The writer's, for commands that read or write rows: a name, or module:attribute."
    )
    segment_extractor: SegmentExtractorSection | None = Field(
        default=None, description="The writer's, for commands that write to a database with segments."
    )
