"""Notes beside a file how many of its rows are durable, so that a killed import goes on there (``--resume``)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shale.errors import InvalidRequestError


class ImportJournal:
    """The notes of one import, in ``FILE.import``.

    Args:
        file: the file that is read.
        url: the database.
    """

    def __init__(self, file: Path, url: str) -> None:
        self._file = file
        self._notes = file.with_name(f"{file.name}.import")
        found = file.stat()
        self._identity = {"database": url, "bytes": found.st_size, "modified_ns": found.st_mtime_ns}
        self._is_writable = True

    @property
    def path(self) -> Path:
        """Where the notes are."""
        return self._notes

    def load(self) -> Mapping[str, Any] | None:
        """Return the notes of an import that was interrupted: ``rows``, and ``epoch`` and ``pid`` of its writer.

        Raises:
            InvalidRequestError: they are of another database, or the file has changed since.
        """
        import orjson

        try:
            notes = orjson.loads(self._notes.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidRequestError(f"{self._notes}: {error}; remove it to begin again") from error
        if not isinstance(notes, dict) or any(notes.get(name) != value for name, value in self._identity.items()):
            raise InvalidRequestError(
                f"{self._notes}: it is of another database, or {self._file.name} has changed since: "
                "give --skip instead of --resume, or remove it to begin again"
            )
        return notes

    def store(self, rows: int, epoch: int | None) -> None:
        """Note that so many rows of the file are durable.

        A directory that cannot be written to is no error: only ``--resume`` will not work.
        """
        if not self._is_writable:
            return
        import orjson

        notes = {**self._identity, "rows": rows, "epoch": epoch, "pid": os.getpid()}
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


def is_running(pid: object) -> bool:
    """Return whether a process of this machine has this id."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
