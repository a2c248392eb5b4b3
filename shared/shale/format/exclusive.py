"""The envelope of manifests that SlateDB must not open (docs/reference/format.md 4.6).

A database whose WAL is written in parallel or kept by a backend, or whose creates go through a transactional store,
would be damaged by a process that does not know this.  Its manifests therefore have a version that SlateDB refuses:
``u16 version, u32 length, JSON, manifest``, big-endian; the manifest has its own version.
"""

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError, InvalidVersion
from shale.format.envelope import HEADER_SIZE
from shale.types import CasMode, ExclusiveModes

EXCLUSIVE_VERSION = 0xF0F2
_VERSION = EXCLUSIVE_VERSION.to_bytes(HEADER_SIZE, "big")
_BASE = 2
_LENGTH_SIZE = 4
_JSON_BYTES_MAX = 4096


def seal_exclusive(modes: ExclusiveModes, manifest: bytes) -> bytes:
    """Put the envelope around a manifest of version 2."""
    import json  # few databases have an envelope

    text: dict[str, object] = {"base": _BASE, "cas": modes.cas.value, "max_parallel_writes": modes.max_parallel_writes}
    if modes.wal_backend is not None:
        text["wal_backend"] = modes.wal_backend
    header = json.dumps(text, separators=(",", ":")).encode()
    return b"".join((_VERSION, len(header).to_bytes(_LENGTH_SIZE, "big"), header, manifest))


def open_exclusive(data: BytesLike, path: str | None = None) -> tuple[ExclusiveModes | None, BytesLike]:
    """Return the modes of a manifest file and the manifest inside; ``None`` and the file itself if it has no envelope.

    Raises:
        InvalidVersion: the envelope is of a later release.
        CorruptionError: the envelope is malformed.
    """
    if data[:HEADER_SIZE] != _VERSION:
        return None, data
    start = HEADER_SIZE + _LENGTH_SIZE
    length = int.from_bytes(data[HEADER_SIZE:start], "big")
    if length > _JSON_BYTES_MAX or len(data) < start + length:
        message = f"the envelope of the manifest says {length} bytes, the file has {len(data)}"
        raise CorruptionError(message, path=path, offset=HEADER_SIZE)
    return _modes_of(bytes(data[start : start + length]), path, start), memoryview(data)[start + length :]


def _modes_of(text: bytes, path: str | None, start: int) -> ExclusiveModes:
    import json

    try:
        fields = json.loads(text)
        base, parallel, cas = fields.pop("base"), fields.pop("max_parallel_writes", 1), fields.pop("cas", "native")
        backend = fields.pop("wal_backend", None)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        message = f"the envelope of the manifest is malformed: {text[:80]!r}"
        raise CorruptionError(message, path=path, offset=start) from error
    # A mode that this release does not know is a reason to stay away, as it is for SlateDB.
    if base != _BASE or fields or cas not in list(CasMode):
        message = f"the database needs a later release: {text[:80]!r}"
        raise InvalidVersion(message, path=path, offset=start)
    if not isinstance(parallel, int) or isinstance(parallel, bool) or parallel < 1:
        raise CorruptionError(f"max_parallel_writes is {parallel!r}", path=path, offset=start)
    if backend is not None and (not isinstance(backend, str) or not backend):
        raise CorruptionError(f"wal_backend is {backend!r}", path=path, offset=start)
    return ExclusiveModes(max_parallel_writes=parallel, cas=CasMode(cas), wal_backend=backend)
