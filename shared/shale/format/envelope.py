"""The two bytes in front of manifests and compactions files: u16 big-endian version (docs/format.md 4.1 and 5.1)."""

from collections.abc import Collection

from shale.errors import CorruptionError, InvalidVersion
from shale.format.buffer import Buffer
from shale.format.flat_reader import FlatReader, FlatTable

HEADER_SIZE = 2


def seal_envelope(version: int, flat: bytes) -> bytes:
    """Put the version in front of a FlatBuffer."""
    return version.to_bytes(HEADER_SIZE, "big") + flat


def open_envelope(data: Buffer, *, what: str, versions: Collection[int], path: str | None) -> tuple[int, FlatTable]:
    """Check the version and return it with the root table behind it.

    Raises:
        InvalidVersion: another version than ``versions``.
        CorruptionError: too short, or the root lies outside.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptionError(f"a {what} file of {len(data)} bytes has no version", path=path, offset=0)
    version = int.from_bytes(data[:HEADER_SIZE], "big")
    if version not in versions:
        known = ", ".join(map(str, sorted(versions)))
        raise InvalidVersion(f"unsupported {what} format version {version}, known are {known}", path=path, offset=0)
    return version, FlatReader(bytes(memoryview(data)[HEADER_SIZE:]), path=path, base=HEADER_SIZE).root()
