"""Finds the database of a command that has no other settings, without pydantic.

Most commands get a URL and nothing else.  The import of pydantic and of the settings classes would be a third of their
time, so the classes are loaded only if there is something for them to read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shale.errors import InvalidRequestError
from shale.service.config.source_names import (
    COMMAND_VARIABLES,
    DEFAULT_FILE,
    PREFIX,
    SECRETS_DIR,
    SHORT_NAMES,
    SLATEDB_PREFIX,
)
from shale.store.location import Location, parse_location, parse_store_url

_VARIABLES = {f"{PREFIX}{name.upper()}": name for name in SHORT_NAMES}


class NamedDatabase(NamedTuple):
    """A database whose settings all have their defaults, and its separate store of the WAL, if any."""

    location: Location
    wal_store: str | None

    @property
    def label(self) -> str:
        """The ``db`` label of metrics and logs."""
        return self.location.path or "db"


def named_database(given: Mapping[str, str], environ: Mapping[str, str]) -> NamedDatabase | None:
    """Return the database that the command line and the short variables name.

    Args:
        given: values of the command line by short name; they override the variables.
        environ: the environment.

    Returns:
        ``None`` if another source may hold settings, or if a value is invalid: ``load_settings`` reads and reports it.
    """
    if _has_other_sources(environ):
        return None
    names = {short: environ[variable] for variable, short in _VARIABLES.items() if variable in environ} | dict(given)
    wal_store = names.pop("wal_store", None)
    try:
        return NamedDatabase(parse_location(**names), None if wal_store is None else parse_store_url(wal_store))
    except InvalidRequestError:
        return None


def _has_other_sources(environ: Mapping[str, str]) -> bool:
    prefixes = (PREFIX, SLATEDB_PREFIX)
    known = _VARIABLES.keys() | COMMAND_VARIABLES
    if any(name.startswith(prefixes) and name not in known for name in environ):
        return True
    return DEFAULT_FILE.exists() or _has_files(SECRETS_DIR)


def _has_files(directory: Path) -> bool:
    """Whether a directory has files; true as well if it cannot be listed, which ``load_settings`` reports."""
    try:
        return directory.is_dir() and any(each.is_file() for each in directory.iterdir())
    except OSError:
        return True
