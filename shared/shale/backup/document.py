"""The document of a backup: one JSON object that names every copied object with its size and SHA-256.

It is written last, with create-if-absent, so a backup exists as a whole or not at all.  ``sha256`` is the checksum of
the document without this field.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

from shale.backup.names import folder_of
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.types import U64_MAX, Ulid

SCHEMA_VERSION = 1
_PLAIN_FIELDS = (
    *("started_ms", "completed_ms", "source", "path", "manifest_id", "last_l0_seq", "replay_after_wal_id"),
    *("copied_objects", "copied_bytes"),
)
"""Fields of a backup that are stored as they are."""

MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""What reading a field raises that is missing or malformed."""
_DIGITS_MAX = 20


class ObjectKind(StrEnum):
    """What a copied object is."""

    SST = "sst"
    WAL = "wal"
    MANIFEST = "manifest"
    VISIBLE_RANGE = "visible_range"


_NUMBERED = (ObjectKind.WAL, ObjectKind.MANIFEST)


@dataclass(frozen=True, slots=True)
class CopyIdentity:
    """What a copy is, whatever its name: two copies with one identity and size have the same content.

    Args:
        kind: what it is.
        folder: tells the database that owns the original.
        name: see ``BackupObject``.
        sha256: empty for an SST, whose id is never used twice.
    """

    kind: ObjectKind
    folder: str
    name: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupObject:
    """A copied object.

    Args:
        kind: what it is.
        name: the ULID of an SST, the number of a WAL file or a manifest.
        key: where the copy is, relative to the root of the backup store.
        size: bytes.
        sha256: checksum in hexadecimal.
        encryption_key: name of the key that it is encrypted with; ``None``: it is not encrypted, or is empty.
    """

    kind: ObjectKind
    name: str
    key: str
    size: int
    sha256: str
    encryption_key: str | None = None

    @property
    def identity(self) -> CopyIdentity:
        """What it is."""
        sha256 = "" if self.kind is ObjectKind.SST else self.sha256
        return CopyIdentity(self.kind, folder_of(self.key), self.name, sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A complete backup.

    Args:
        id: sorts by the time of its start.
        started_ms, completed_ms: milliseconds since 1970.
        source: URL of the database.
        path: path of the database in its store.
        manifest_id: the version of the manifest that was copied.
        checkpoint_id: the checkpoint that kept it.
        last_l0_seq: the newest sequence number in its SSTs; WAL files may have newer rows.
        replay_after_wal_id: rows of later WAL files are not in SSTs.
        objects: all objects that it needs.
        copied_objects, copied_bytes: what this backup added to the store.
    """

    id: Ulid
    started_ms: int
    completed_ms: int
    source: str
    path: str
    manifest_id: int
    checkpoint_id: UUID
    last_l0_seq: int
    replay_after_wal_id: int
    objects: tuple[BackupObject, ...]
    copied_objects: int
    copied_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(each.size for each in self.objects)

    @property
    def encryption_keys(self) -> tuple[str, ...]:
        """Names of the keys that are needed to read it, sorted; empty if it is not encrypted."""
        return tuple(sorted({each.encryption_key for each in self.objects if each.encryption_key is not None}))

    def of_kind(self, kind: ObjectKind) -> tuple[BackupObject, ...]:
        """Return the objects of one kind."""
        return tuple(each for each in self.objects if each.kind is kind)

    @property
    def manifest(self) -> BackupObject:
        """The copy of the manifest."""
        return self.of_kind(ObjectKind.MANIFEST)[0]

    @property
    def wal(self) -> dict[int, BackupObject]:
        """The copied WAL files by number."""
        return {int(each.name): each for each in self.of_kind(ObjectKind.WAL)}


def encode_backup(backup: Backup) -> bytes:
    """Return the stored form of a document."""
    plain = {name: getattr(backup, name) for name in _PLAIN_FIELDS}
    objects = [object_fields(each) for each in backup.objects]
    keys = list(backup.encryption_keys)
    ids = {"id": str(backup.id), "checkpoint_id": str(backup.checkpoint_id)}
    return seal({**ids, **plain, "encryption_keys": keys, "objects": objects})


def decode_backup(data: BytesLike, *, path: str) -> Backup:
    """Read what ``encode_backup`` writes; fields that a later release adds are ignored.

    Raises:
        CorruptionError: the checksum differs, a field is missing, or the schema is newer than this release.
    """
    fields = unseal(data, path=path)
    try:
        backup = Backup(
            id=_ulid(fields["id"]),
            started_ms=count_of(fields, "started_ms"),
            completed_ms=count_of(fields, "completed_ms"),
            source=str(fields["source"]),
            path=str(fields["path"]),
            manifest_id=count_of(fields, "manifest_id"),
            checkpoint_id=UUID(fields["checkpoint_id"]),
            last_l0_seq=count_of(fields, "last_l0_seq"),
            replay_after_wal_id=count_of(fields, "replay_after_wal_id"),
            objects=tuple(parse_object(each) for each in fields["objects"]),
            copied_objects=count_of(fields, "copied_objects"),
            copied_bytes=count_of(fields, "copied_bytes"),
        )
    except MALFORMED as error:
        raise CorruptionError(f"a field is missing or malformed: {error}", path=path) from error
    if len(backup.of_kind(ObjectKind.MANIFEST)) != 1:
        raise CorruptionError("it does not name exactly one manifest", path=path)
    return backup


def object_fields(found: BackupObject) -> dict[str, object]:
    """Return an object as plain JSON values."""
    plain = {name: getattr(found, name) for name in ("name", "key", "sha256", "encryption_key")}
    return {"kind": found.kind.value, "bytes": found.size, **plain}


def parse_object(fields: Mapping[str, Any]) -> BackupObject:
    """Read what ``object_fields`` returns.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or malformed.
    """
    kind, name, encryption_key = ObjectKind(fields["kind"]), str(fields["name"]), fields["encryption_key"]
    if kind in _NUMBERED and not (name.isascii() and name.isdigit() and len(name) <= _DIGITS_MAX):
        raise ValueError(f"{name!r} is not the number of a file")
    if not isinstance(encryption_key, str | None):
        raise TypeError(f"{encryption_key!r} is not the name of a key")
    return BackupObject(
        kind=kind,
        name=name,
        key=str(fields["key"]),
        size=count_of(fields, "bytes"),
        sha256=str(fields["sha256"]),
        encryption_key=encryption_key,
    )


def count_of(fields: Mapping[str, Any], name: str) -> int:
    """Return a field that is a number of 64 bits without sign.

    Raises:
        KeyError, ValueError: it is missing or malformed.
    """
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= U64_MAX:
        raise ValueError(f"{name} is {value!r}")
    return value


def seal(fields: Mapping[str, object]) -> bytes:
    """Return JSON with the version of the schema, and the checksum of the rest as last field."""
    import orjson

    body = {"schema_version": SCHEMA_VERSION, **fields}
    return orjson.dumps({**body, "sha256": _checksum(body)}, option=orjson.OPT_INDENT_2)


def unseal(data: BytesLike, *, path: str) -> dict[str, Any]:
    """Return the fields that ``seal`` has written.

    Raises:
        CorruptionError: not JSON, another checksum, or a schema that this release does not know.
    """
    import orjson

    try:
        body = orjson.loads(bytes(data))
        found = body.pop("sha256")
        version = body["schema_version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError("it is not a document of a backup", path=path) from error
    if version != SCHEMA_VERSION:
        raise CorruptionError(f"schema_version {version!r} is unknown: this release reads {SCHEMA_VERSION}", path=path)
    try:
        checksum = _checksum(body)
    except TypeError as error:  # nested more deeply than any document
        raise CorruptionError("it is not a document of a backup", path=path) from error
    if found != checksum:
        raise CorruptionError("its checksum does not match its content", path=path)
    return dict(body)


def _checksum(body: Mapping[str, object]) -> str:
    import orjson

    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _ulid(text: str) -> Ulid:
    found = Ulid.parse(text)
    if found is None:
        raise ValueError(f"{text!r} is not an id")
    return found
