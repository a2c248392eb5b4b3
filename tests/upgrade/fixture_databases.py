"""The databases of the fixtures, unpacked, and how to open them."""

import json
import tarfile
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import shale
from tests.upgrade.make_fixture import FIXTURES
from tests.upgrade.scenario import KEY


class FixtureDatabase(NamedTuple):
    """One database of the fixture of a version, and the rows that it must show."""

    version: str
    name: str
    rows: dict[bytes, bytes]
    opened: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.version}-{self.name}"

    def reading(self) -> dict[str, Any]:
        """Return the settings with which any process opens it."""
        settings: dict[str, Any] = {}
        if "merge_operator" in self.opened:
            settings["merge_operator"] = self.opened["merge_operator"]
        if "encrypted" in self.opened:
            settings["block_transformer"] = shale.AesGcm({"k1": KEY})
        return settings

    def writing(self) -> dict[str, Any]:
        """Return the settings with which a writer opens it."""
        settings = self.reading()
        if "prefix_length" in self.opened:
            settings["segment_extractor"] = shale.FixedPrefix("first three", self.opened["prefix_length"])
        named = ("compression", "max_parallel_writes")
        return settings | {name: self.opened[name] for name in named if name in self.opened}

    def unpack(self, folder: Path) -> None:
        """Unpack the whole fixture: a clone needs its parent."""
        with tarfile.open(FIXTURES / f"{self.version}.tar.gz") as tar:
            tar.extractall(folder, filter="data")


@cache
def fixture_databases() -> tuple[FixtureDatabase, ...]:
    """Return the databases of all fixtures."""
    return tuple(_databases())


def _databases() -> Iterator[FixtureDatabase]:
    for path in sorted(FIXTURES.glob("*.tar.gz")):
        version = path.name.removesuffix(".tar.gz")
        with tarfile.open(path) as tar:
            file = tar.extractfile("rows.json")
            assert file is not None
            described = json.load(file)["databases"]
        for name, each in described.items():
            rows = {b64decode(key): b64decode(value) for key, value in each["rows"].items()}
            yield FixtureDatabase(version, name, rows, each["open"])
