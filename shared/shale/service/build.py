"""The version and revision of this build."""

import os
from importlib import metadata

FORMATS = "manifest-v2 compactions-v2 sst-v2"
"""The format versions that this build writes; it also reads older ones."""


def version() -> str:
    """The version of the installed distribution; ``0`` when it runs from a source tree."""
    try:
        return metadata.version("shale")
    except metadata.PackageNotFoundError:
        return "0"


def revision() -> str:
    """The commit of the image, which its build sets."""
    return os.environ.get("SHALE_REVISION", "unknown")
