"""Which keys the two-phase mode handles, and the names of staged objects (docs/reference/protocol.md 12.2)."""

import re
from typing import NamedTuple

from shale.format.names import PREFLIGHT_FOLDER
from shale.store.transactional.port import Slot

_SUFFIXES = {"manifest": "manifest", "compactions": "compactions", "wal": "sst"}
_SEQUENCED = re.compile(
    r"(?P<namespace>(?:.*/)?(?P<kind>manifest|compactions|wal))/(?P<id>[0-9]{20})\.(?P<suffix>[a-z]+)"
)
_BOUNDARY = re.compile(r"(?P<root>(?:.*/)?)gc/(?P<kind>manifest|compactions)\.boundary")
_STAGED = re.compile(r"(?P<destination>.+)\.(?P<put_id>[0-9A-Za-z-]{26,36})\.(?P<checksum>[0-9a-f]{16})")
_MARKER = ".destroyed"
CHECKSUM_DIGITS = 16


class StagedName(NamedTuple):
    """The parts of the name of a staged object."""

    destination: str
    put_id: str


def slot_of(key: str) -> Slot | None:
    """Return the slot of a numbered file; ``None`` for other keys."""
    found = _SEQUENCED.fullmatch(key)
    if found is None or found["suffix"] != _SUFFIXES[found["kind"]]:
        return None
    return Slot(found["namespace"], int(found["id"]))


def is_emulated(key: str) -> bool:
    """Return whether an object has a commit record: numbered files, the marker of a destroyed database, and the scratch
    keys of the preflight, which must not pass without one.
    """
    segments = key.split("/")
    return segments[-1] == _MARKER or PREFLIGHT_FOLDER in segments or slot_of(key) is not None


def is_sequenced_directory(prefix: str) -> bool:
    """Return whether ``prefix`` is a directory of numbered files; it ends with a slash."""
    return prefix.rstrip("/").rpartition("/")[2] in _SUFFIXES


def namespace_of_boundary(key: str) -> str | None:
    """Return the namespace whose boundary an object is; ``None`` for other keys."""
    found = _BOUNDARY.fullmatch(key)
    return None if found is None else f"{found['root']}{found['kind']}"


def staged_key(destination: str, put_id: str, checksum: str) -> str:
    """Return the key of a staged object: another put, or other bytes, has another one."""
    return f"{destination}.{put_id}.{checksum[:CHECKSUM_DIGITS]}"


def parse_staged_key(key: str) -> StagedName | None:
    """Return the parts of the key of a staged object; ``None`` for other keys."""
    found = _STAGED.fullmatch(key)
    if found is None or not is_emulated(found["destination"]):
        return None
    return StagedName(found["destination"], found["put_id"])
