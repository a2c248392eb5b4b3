"""Reads lock files: names, versions and hashes of packages."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class LockedPackage(NamedTuple):
    """One package of a lock, with the SHA-256 of each of its files."""

    name: str
    version: str
    hashes: frozenset[str]


def normalized(name: str) -> str:
    """Return a name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_packages(text: str) -> Iterator[LockedPackage]:
    """Yield the packages of a lock."""
    for entry in re.split(r"(?<!\\)\n(?=\S)", text):
        if found := _ENTRY.match(entry):
            yield LockedPackage(normalized(found[1]), found[2], frozenset(_HASH.findall(entry)))
