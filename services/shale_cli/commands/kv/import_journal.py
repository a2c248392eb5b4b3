"""Notes beside a file how many of its rows are durable, so that a killed import goes on there (``--resume``)."""

import os
from collections.abc import Mapping
from pathlib import Path
from socket import gethostname
from typing import Any

from shale.errors import InvalidRequestError


class ImportJournal:
    """The notes of one import, in ``FILE.import``.

    Args:
        file: the file that is read.
        url: the database.
        options: the options that decide what rows are made of the file, as they are given.
    """

    def __init__(self, file: Path, url: str, options: str = "") -> None:
        self._file = file
        self._notes = file.with_name(f"{file.name}.import")
        found = file.stat()
        self._identity = {
            "database": url,
            "options": options,
            "bytes": found.st_size,
            "modified_ns": found.st_mtime_ns,
        }
        self._is_writable = True

    @property
    def path(self) -> Path:
        """Where the notes are."""
        return self._notes

    def load(self) -> Mapping[str, Any] | None:
        """Return the notes of an interrupted import: ``rows``, and ``epoch``, ``pid`` and ``host`` of its writer.

        Raises:
            InvalidRequestError: they are of another database or of other options, or the file has changed since.
        """
        import orjson

        try:
            notes = orjson.loads(self._notes.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidRequestError(f"{self._notes}: {error}; remove it to begin again") from error
        if not isinstance(notes, dict) or type(notes.get("rows")) is not int:
            raise InvalidRequestError(f"{self._notes}: these are no notes of an import; remove it to begin again")
        for name, value in self._identity.items():
            if notes.get(name) != value:
                difference = self._difference(name, notes)
                raise InvalidRequestError(f"{self._notes}: {difference}, or remove it to begin again")
        return notes

    def _difference(self, name: str, notes: Mapping[str, Any]) -> str:
        if name == "database":
            return f"it is of an import into {notes.get(name)}: name that database"
        if name == "options":
            return f"it is of an import with {notes.get(name) or 'no options'}: give the same ones"
        return (
            f"{self._file.name} has changed since: give --skip instead of --resume, "
            f"--skip {notes['rows']} if it still begins with the {notes['rows']} rows that were imported"
        )

    def store(self, rows: int, epoch: int | None) -> None:
        """Note that so many rows of the file are durable.

        A directory that cannot be written to is no error: only ``--resume`` will not work.
        """
        if not self._is_writable:
            return
        import orjson

        notes = {**self._identity, "rows": rows, "epoch": epoch, "pid": os.getpid(), "host": gethostname()}
        new = self._notes.with_name(f"{self._notes.name}.new")
        try:
            new.write_bytes(orjson.dumps(notes))
            new.replace(self._notes)
        except OSError:
            self._is_writable = False

    def remove(self) -> None:
        """Remove the notes: the import is complete."""
        if self._is_writable:
            self._notes.unlink(missing_ok=True)


def may_run(notes: Mapping[str, Any]) -> bool:
    """Return whether the process that made notes may still run: it has an id of this machine, or ran on another one."""
    pid = notes.get("pid")
    if notes.get("host") != gethostname():
        return True
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no process has an id of that size
        return False
    except PermissionError:
        return True
    return True
