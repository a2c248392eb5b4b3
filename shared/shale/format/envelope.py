"""The u16 big-endian version before the FlatBuffer of a manifest or compactions file (docs/reference/format.md 4.1)."""

from collections.abc import Collection, Mapping

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError, InvalidVersion
from shale.format.flat.verifier import Verifier

HEADER_SIZE = 2


def seal_envelope(version: int, flat: bytes) -> bytes:
    """Put the version before a FlatBuffer."""
    return version.to_bytes(HEADER_SIZE, "big") + flat


def open_envelope(
    data: BytesLike, *, what: str, roots: Mapping[int, str], path: str | None, left_out: Collection[str] = ()
) -> tuple[int, Verifier]:
    """Check the version and verify the FlatBuffer that follows it.

    Args:
        data: the file.
        what: the kind of file, for errors.
        roots: the versions that can be read, and the schema's name of the root table of each.
        path: the object's name, for errors.
        left_out: see ``Verifier.verify_root``.

    Raises:
        InvalidVersion: another version.
        CorruptionError: too short, or not a FlatBuffer with this root.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptionError(f"a {what} file of {len(data)} bytes has no version", path=path, offset=0)
    version = int.from_bytes(data[:HEADER_SIZE], "big")
    if version not in roots:
        raise InvalidVersion(
            f"unsupported {what} format version {version}, known are {_listed(roots)}", path=path, offset=0
        )
    source = Verifier(bytes(memoryview(data)[HEADER_SIZE:]), path=path, base=HEADER_SIZE)
    source.verify_root(roots[version], left_out=left_out)
    return version, source


def _listed(versions: Collection[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
