"""Names of objects below a database's root (docs/reference/format.md 1, docs/reference/protocol.md 0.1).

``root`` is the database's path in its store: segments joined with ``/``, without a leading or trailing slash.  Only the
canonical form of a name is ever read: a collector that trusted ``7.manifest`` to mean id 7 would delete another object.
"""

import re
from uuid import UUID

from shale.types import U64_MAX, CompactionsId, ManifestId, Ulid, WalId

MANIFEST_SUFFIX = ".manifest"
COMPACTIONS_SUFFIX = ".compactions"
SST_SUFFIX = ".sst"
RECORD_SUFFIX = ".json"
PREFLIGHT_FOLDER = ".shale-preflight"
_ID_DIGITS = 20
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def below(root: str, name: str) -> str:
    """Return the key of ``name`` in the database ``root``; an empty root is the store itself."""
    return f"{root}/{name}" if root else name


def manifest_prefix(root: str) -> str:
    """Return the folder of the manifests, with its slash."""
    return below(root, "manifest/")


def compactions_prefix(root: str) -> str:
    """Return the folder of the compactions files, with its slash."""
    return below(root, "compactions/")


def wal_prefix(root: str) -> str:
    """Return the folder of the WAL files, with its slash."""
    return below(root, "wal/")


def compacted_prefix(root: str) -> str:
    """Return the folder of L0 and sorted-run SSTs, with its slash."""
    return below(root, "compacted/")


def compaction_records_prefix(root: str) -> str:
    """Return the folder of the records of compactions, which only Shale uses, with its slash."""
    return below(root, "compaction_records/")


def gc_prefix(root: str) -> str:
    """Return the folder of the boundary files, with its slash."""
    return below(root, "gc/")


def preflight_prefix(root: str) -> str:
    """Return the folder of the scratch objects of a daemon's start, with its slash."""
    return below(root, f"{PREFLIGHT_FOLDER}/")


def manifest_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Return the key of a manifest version."""
    return f"{manifest_prefix(root)}{id:020}{MANIFEST_SUFFIX}"


def compactions_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Return the key of a version of the compactions file."""
    return f"{compactions_prefix(root)}{id:020}{COMPACTIONS_SUFFIX}"


def wal_key(root: str, id: int) -> str:  # noqa: A002 - the format's name
    """Return the key of a WAL file."""
    return f"{wal_prefix(root)}{id:020}{SST_SUFFIX}"


def sst_key(root: str, ulid: Ulid) -> str:
    """Return the key of a compacted SST."""
    return f"{compacted_prefix(root)}{ulid}{SST_SUFFIX}"


def compaction_record_key(root: str, ulid: Ulid) -> str:
    """Return the key of the record of one compaction."""
    return f"{compaction_records_prefix(root)}{ulid}{RECORD_SUFFIX}"


def boundary_key(root: str, resource: str) -> str:
    """Return the key of the boundary of ``manifest`` or ``compactions``."""
    return f"{gc_prefix(root)}{resource}.boundary"


def visible_range_key(root: str) -> str:
    """Return the key of the range that a clone shows."""
    return f"{gc_prefix(root)}visible_range"


def attempt_range_key(root: str, attempt: UUID) -> str:
    """Return the key of the range of one attempt to create a clone."""
    return f"{visible_range_key(root)}_{attempt}"


def deleting_key(root: str) -> str:
    """Return the key of the marker that SlateDB's admin writes while it deletes a database."""
    return below(root, ".deleting")


def destroyed_key(root: str) -> str:
    """Our marker of a destroyed database (docs/reference/protocol.md 8.8)."""
    return below(root, ".destroyed")


def parse_manifest_key(root: str, key: str) -> ManifestId | None:
    """Return the id in a listed key; ``None`` unless the key is exactly what ``manifest_key`` gives."""
    id_ = _parse_id(key, manifest_prefix(root), MANIFEST_SUFFIX)
    return None if id_ is None else ManifestId(id_)


def parse_compactions_key(root: str, key: str) -> CompactionsId | None:
    """Return the id in a listed key; ``None`` unless the key is exactly what ``compactions_key`` gives."""
    id_ = _parse_id(key, compactions_prefix(root), COMPACTIONS_SUFFIX)
    return None if id_ is None else CompactionsId(id_)


def parse_wal_key(root: str, key: str) -> WalId | None:
    """Return the id in a listed key; ``None`` unless the key is exactly what ``wal_key`` gives."""
    id_ = _parse_id(key, wal_prefix(root), SST_SUFFIX)
    return None if id_ is None else WalId(id_)


def parse_sst_key(root: str, key: str) -> Ulid | None:
    """Return the ULID in a listed key; ``None`` unless the key is exactly what ``sst_key`` gives."""
    stem = _stem(key, compacted_prefix(root), SST_SUFFIX)
    return None if stem is None else Ulid.parse(stem)


def parse_compaction_record_key(root: str, key: str) -> Ulid | None:
    """Return the id of the compaction in a listed key; ``None`` unless it is what ``compaction_record_key`` gives."""
    stem = _stem(key, compaction_records_prefix(root), RECORD_SUFFIX)
    return None if stem is None else Ulid.parse(stem)


def parse_attempt_range_key(root: str, key: str) -> UUID | None:
    """Return the id of the attempt in a listed key; ``None`` unless the key is what ``attempt_range_key`` gives."""
    stem = _stem(key, f"{visible_range_key(root)}_", "")
    if stem is None or _UUID.fullmatch(stem) is None:
        return None
    return UUID(stem)


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
