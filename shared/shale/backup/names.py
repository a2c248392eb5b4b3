"""Names of objects below the root of a backup store.

``backups/<id>.json``: one document per complete backup.  ``in-progress/<id>/``: the plan of a backup that is being made
(``plan.json``), and what it has copied (``copied-<ulid>.json``).  ``objects/<path of a database>/``: the copies, which
backups share.  ``prune-locks/<ulid>.json`` and ``prune.lock``: a prune deletes objects.

The name of a copy ends in the id of the backup that made it.  So no name is written again after a prune has deleted it,
and a late duplicate of that delete removes nothing.  Documents name the copies by their keys; no code parses more of a
key than its folder.  Earlier releases wrote the names without the id.

An id of an SST is never used twice.  Numbers of WAL files and manifests start again after a database was destroyed, so
the names of these copies also contain the checksum of their content.
"""

from shale.format.names import SST_SUFFIX, below, compacted_prefix
from shale.types import Ulid

DOCUMENT_SUFFIX = ".json"
_DIGEST_CHARACTERS = 16


def documents_prefix(root: str) -> str:
    """Return the folder of the documents, with its slash."""
    return below(root, "backups/")


def document_key(root: str, backup_id: Ulid) -> str:
    """Return the key of the document of a backup."""
    return f"{documents_prefix(root)}{backup_id}{DOCUMENT_SUFFIX}"


def parse_document_key(root: str, key: str) -> Ulid | None:
    """Return the id in a listed key; ``None`` unless the key is exactly what ``document_key`` gives."""
    name = key.removeprefix(documents_prefix(root))
    return Ulid.parse(name.removesuffix(DOCUMENT_SUFFIX)) if name.endswith(DOCUMENT_SUFFIX) else None


def unfinished_prefix(root: str) -> str:
    """Return the folder of the backups in progress, with its slash."""
    return below(root, "in-progress/")


def unfinished_folder(root: str, backup_id: Ulid) -> str:
    """Return the folder of one backup in progress, with its slash."""
    return f"{unfinished_prefix(root)}{backup_id}/"


def plan_key(root: str, backup_id: Ulid) -> str:
    """Return the key of the plan of a backup in progress."""
    return f"{unfinished_folder(root, backup_id)}plan{DOCUMENT_SUFFIX}"


def journal_key(root: str, backup_id: Ulid, part: Ulid) -> str:
    """Return the key of a list of copied objects."""
    return f"{unfinished_folder(root, backup_id)}copied-{part}{DOCUMENT_SUFFIX}"


def locks_prefix(root: str) -> str:
    """Return the folder of the locks, with its slash."""
    return below(root, "prune-locks/")


def lock_key(root: str, lock_id: Ulid) -> str:
    """Return the key of the lock of one prune."""
    return f"{locks_prefix(root)}{lock_id}{DOCUMENT_SUFFIX}"


def earlier_lock_key(root: str) -> str:
    """Return the key of the one lock that earlier releases know."""
    return below(root, "prune.lock")


def objects_prefix(root: str) -> str:
    """Return the folder of the copies, with its slash."""
    return below(root, "objects/")


def sst_copy(path: str, sst_id: Ulid, backup_id: Ulid) -> str:
    """Return the name of a new copy of an SST, relative to the root.

    Args:
        path: the database that owns it.
        sst_id: its id.
        backup_id: the backup that makes the copy.
    """
    return f"{compacted_prefix(database_folder(path))}{sst_id}-{backup_id}{SST_SUFFIX}"


def earlier_sst_copy(copy: str, sst_id: Ulid) -> str:
    """Return the name that earlier releases give to a copy of an SST, in the folder of ``copy``."""
    return f"{folder_of(copy)}/{sst_id}{SST_SUFFIX}"


def hashed_copy(path: str, folder: str, name: str, sha256: str, backup_id: Ulid) -> str:
    """Return the name of a new copy whose original name can be used again; relative to the root."""
    return f"{database_folder(path)}/{folder}/{name}-{sha256[:_DIGEST_CHARACTERS]}-{backup_id}"


def folder_of(copy: str) -> str:
    """Return the folder of a copy, which tells its database and kind, without a slash at the end."""
    return copy.rpartition("/")[0]


def database_folder(path: str) -> str:
    """Return the folder of the copies of one database, relative to the root, without a slash at the end."""
    return f"objects/{path}" if path else "objects"
