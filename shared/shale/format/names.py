"""Names of objects below a database's root (docs/format.md 1, docs/protocol.md 0.1).

``root`` is the database's path in its store: segments joined with ``/``, nothing in front or behind.  Only the
canonical form of a name is ever read: a collector that trusted ``7.manifest`` to mean id 7 would delete another object.
"""

from shale.types import U64_MAX, CompactionsId, ManifestId, Ulid, WalId

MANIFEST_SUFFIX = ".manifest"
COMPACTIONS_SUFFIX = ".compactions"
SST_SUFFIX = ".sst"
_ID_DIGITS = 20


def below(root: str, name: str) -> str:
    """The key of ``name`` in the database ``root``; an empty root is the store itself."""
    return f"{root}/{name}" if root else name


def manifest_prefix(root: str) -> str:
    """The folder of the manifests, with its slash."""
    return below(root, "manifest/")


def compactions_prefix(root: str) -> str:
    """The folder of the compactions files, with its slash."""
    return below(root, "compactions/")


def wal_prefix(root: str) -> str:
    """The folder of the WAL files, with its slash."""
    return below(root, "wal/")


def compacted_prefix(root: str) -> str:
    """The folder of L0 and sorted-run SSTs, with its slash."""
    return below(root, "compacted/")


def gc_prefix(root: str) -> str:
    """The folder of the boundary files, with its slash."""
    return below(root, "gc/")


def manifest_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Where a manifest version is."""
    return f"{manifest_prefix(root)}{id:020}{MANIFEST_SUFFIX}"


def compactions_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Where a version of the compactions file is."""
    return f"{compactions_prefix(root)}{id:020}{COMPACTIONS_SUFFIX}"


def wal_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Where a WAL file is."""
    return f"{wal_prefix(root)}{id:020}{SST_SUFFIX}"


def sst_key(root: str, ulid: Ulid) -> str:
    """Where a compacted SST is."""
    return f"{compacted_prefix(root)}{ulid}{SST_SUFFIX}"


def boundary_key(root: str, resource: str) -> str:
    """Where the boundary of ``manifest`` or ``compactions`` is."""
    return f"{gc_prefix(root)}{resource}.boundary"


def deleting_key(root: str) -> str:
    """The marker that SlateDB's admin puts down while it deletes a database."""
    return below(root, ".deleting")


def destroyed_key(root: str) -> str:
    """Our marker of a destroyed database (docs/protocol.md 8.8)."""
    return below(root, ".destroyed")


def parse_manifest_key(root: str, key: str) -> ManifestId | None:
    """The id in a listed key; ``None`` unless the key is exactly what ``manifest_key`` gives."""
    id_ = _parse_id(key, manifest_prefix(root), MANIFEST_SUFFIX)
    return None if id_ is None else ManifestId(id_)


def parse_compactions_key(root: str, key: str) -> CompactionsId | None:
    """The id in a listed key; ``None`` unless the key is exactly what ``compactions_key`` gives."""
    id_ = _parse_id(key, compactions_prefix(root), COMPACTIONS_SUFFIX)
    return None if id_ is None else CompactionsId(id_)


def parse_wal_key(root: str, key: str) -> WalId | None:
    """The id in a listed key; ``None`` unless the key is exactly what ``wal_key`` gives."""
    id_ = _parse_id(key, wal_prefix(root), SST_SUFFIX)
    return None if id_ is None else WalId(id_)


def parse_sst_key(root: str, key: str) -> Ulid | None:
    """The ULID in a listed key; ``None`` unless the key is exactly what ``sst_key`` gives."""
    stem = _stem(key, compacted_prefix(root), SST_SUFFIX)
    return None if stem is None else Ulid.parse(stem)


def _stem(key: str, prefix: str, suffix: str) -> str | None:
    if not key.startswith(prefix) or not key.endswith(suffix) or len(key) < len(prefix) + len(suffix):
        return None
    return key[len(prefix) : len(key) - len(suffix)]


def _parse_id(key: str, prefix: str, suffix: str) -> int | None:
    stem = _stem(key, prefix, suffix)
    if stem is None or len(stem) != _ID_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    id_ = int(stem)
    return id_ if 1 <= id_ <= U64_MAX else None
