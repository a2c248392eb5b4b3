"""The archive: a gzipped tar file that is renamed to its final name when it is complete."""

import io
import os
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shale.errors import InvalidRequestError


class Archive:
    """A context manager.  ``path`` is created only if the body succeeds.

    Args:
        path: the file to create; it must not exist.
        folder: the name of the folder in the archive.
        now_s: the modification time of all files, in seconds since 1970.
    """

    def __init__(self, path: Path, folder: str, now_s: int) -> None:
        if path.exists():
            raise InvalidRequestError(f"{path} already exists")
        self.names: list[str] = []
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._folder = folder
        self._now_s = now_s

    def __enter__(self) -> Self:
        try:
            self._part.unlink(missing_ok=True)
            # Others may write to the folder: a file or a link that they make now is an error, and not used.
            self._file = open(self._part, "xb", opener=partial(os.open, mode=0o600))
        except OSError as error:
            raise InvalidRequestError(f"{self._part}: {error.strerror}") from error
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()
        self._file.close()
        if error is None:
            self._part.rename(self._path)
        else:
            self._part.unlink()

    def add(self, name: str, data: bytes) -> None:
        """Add a file."""
        entry = tarfile.TarInfo(f"{self._folder}/{name}")
        entry.size, entry.mtime, entry.mode = len(data), self._now_s, 0o600
        self._tar.addfile(entry, io.BytesIO(data))
        self.names.append(name)

    def add_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Add a JSON document."""
        import orjson

        self.add(name, orjson.dumps(value, option=orjson.OPT_INDENT_2))
