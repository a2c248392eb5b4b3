"""The file itself: a gzipped tar that is there when it is whole."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shale.errors import InvalidRequestError


class Archive:
    """Use with ``with``.  Nothing is left under ``path`` unless the body ended well.

    Args:
        path: must not exist.
        folder: the name of the one folder in it.
        now_s: the time of all its files, in seconds since 1970.
    """

    def __init__(self, path: Path, folder: str, now_s: int) -> None:
        if path.exists():
            raise InvalidRequestError(f"{path} exists already")
        self.names: list[str] = []
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._folder = folder
        self._now_s = now_s

    def __enter__(self) -> Self:
        try:
            self._part.touch(mode=0o600)
            self._tar = tarfile.open(self._part, "w:gz")
        except OSError as error:
            raise InvalidRequestError(f"{self._part}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()
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
