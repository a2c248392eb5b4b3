"""The settings of manifests, which all daemons share."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from shale.service.config.section import Section
from shale.types import MANIFEST_VERSION, ManifestVersion


def _number(value: Any) -> Any:
    """Parse the text of a variable or an option: a literal takes numbers only."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


class ManifestSection(Section):
    """How manifests are written."""

    write_version: Annotated[ManifestVersion, BeforeValidator(_number)] = Field(
        default=MANIFEST_VERSION,
        description="Format of new manifests; 1 for a database that processes before SlateDB 0.12 still read.",
    )
