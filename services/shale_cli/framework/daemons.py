"""The daemon commands, and the settings of each daemon."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shale.service.config.settings import DaemonSettings

DAEMONS = {
    "writer": "shale_writer",
    "compactor": "shale_compactor",
    "worker": "shale_compactor.worker",
    "gc": "shale_gc",
    "reader": "shale_reader",
}
"""Daemon commands and their packages, which are imported by name and only when needed."""

DAEMON_ALIASES = {"run-writer": "writer", "run-compactor": "compactor", "run-worker": "worker"}
"""SlateDB's names of the daemons."""


VERBS = {"gc": ("run", "plan"), "writer": ("promote",)}
"""Daemons that are also nouns: without one of these verbs, the command is the daemon."""


def settings_class(role: str) -> "type[DaemonSettings]":
    """Return the settings class with this ``ROLE``; the package of the daemon is imported by name."""
    import typer

    from shale.service.config.settings import DaemonSettings

    if role not in DAEMONS:
        raise typer.BadParameter(f"{role} is none of {', '.join(DAEMONS)}")
    module = importlib.import_module(f"{DAEMONS[role]}.settings")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, DaemonSettings) and vars(value).get("ROLE") == role:
            return value
    raise AssertionError(f"{module.__name__} has no settings for {role}")
