"""The manifest: one frozen value per version of a database.

Source: docs/reference/format.md 4, docs/reference/protocol.md 3.3.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from typing import Literal, TypeAlias
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.types.ids import Epoch, ManifestId, Seq, Ulid, WalId
from shale.types.sst import SortedRun, Sst, SstView

ManifestVersion: TypeAlias = Literal[1, 2]
"""The format of a manifest file: 1 is for databases that processes before SlateDB 0.12 still read."""
MANIFEST_VERSION: ManifestVersion = 2
CLOCK_TICK_MIN = -(2**63)
_WRITERS_NAME = re.compile(r"writer:([0-9]{1,19})(?:\?.*)?", re.DOTALL)
EMPTY_SEQUENCE_TRACKER = b"\x01" + bytes(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One LSM tree.  ``l0`` is newest first; ``compacted`` is newest first, that is by descending run id.

    The watermark is the view id of the newest L0 that compaction has consumed; ``…_sst_id`` is the id of its SST,
    which only manifests of version 1 and the process that set it hold.
    """

    l0: tuple[SstView, ...] = ()
    compacted: tuple[SortedRun, ...] = ()
    last_compacted_l0_sst_view_id: Ulid | None = None
    last_compacted_l0_sst_id: Ulid | None = None

    @property
    def is_empty(self) -> bool:
        """No L0 and no runs."""
        return not self.l0 and not self.compacted

    def views(self) -> Iterator[SstView]:
        """Yield every view, L0 first, in order of precedence."""
        yield from self.l0
        for run in self.compacted:
            yield from run.ssts


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The tree of all keys with one prefix."""

    prefix: bytes
    tree: Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A manifest version that must be kept.  Times are whole seconds since 1970; ``expire_s`` 0 means never."""

    id: UUID
    manifest_id: ManifestId
    expire_s: int = 0
    create_s: int = 0
    name: str | None = None

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the checkpoint has expired (``expire <= now``)."""
        return self.expire_s != 0 and self.expire_s * 1000 <= now_ms

    @property
    def writer_epoch(self) -> Epoch | None:
        """The epoch of the writer whose own checkpoint this is; ``None`` for checkpoints of other owners.

        The name ``writer:`` and the epoch holds it: SlateDB drops the metadata that the format has for it.
        """
        match = _WRITERS_NAME.fullmatch(self.name) if self.name is not None else None
        return None if match is None else Epoch(int(match[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDb:
    """Another database in the same store that owns SSTs which this one uses."""

    path: str
    source_checkpoint_id: UUID
    final_checkpoint_id: UUID | None = None
    sst_ids: tuple[Ulid, ...] = ()


class CasMode(StrEnum):
    """How files are created once: by the object store, or through a transactional store."""

    NATIVE = "native"
    TWO_PHASE = "two-phase"


class AckAfter(StrEnum):
    """When a create of the two-phase mode returns: when the object is copied, or when its record is committed."""

    COPY = "copy"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveModes:
    """Properties of a database that SlateDB does not have, so that it must not open it; fixed at creation.

    ``max_parallel_writes``: WAL files that a writer may write at the same time.  ``wal_backend``: the name of the
    backend that keeps the WAL; ``None``: a store keeps it.
    """

    max_parallel_writes: int = 1
    cas: CasMode = CasMode.NATIVE
    wal_backend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a version, without its own id, which is in the file name.

    ``next_wal_sst_id`` is the wire's ``wal_id_last_seen`` plus one.  ``sequence_tracker`` stays encoded: only the
    writer decodes it, all other processes copy it.  ``wal_object_store_uri`` exists in version 1 only.
    ``exclusive`` is in the envelope of a database that SlateDB must not open.
    """

    initialized: bool = True
    writer_epoch: Epoch = Epoch(0)
    compactor_epoch: Epoch = Epoch(0)
    replay_after_wal_id: WalId = WalId(0)
    next_wal_sst_id: WalId = WalId(1)
    tree: Tree = field(default_factory=Tree)
    segments: tuple[Segment, ...] = ()
    segment_extractor_name: str | None = None
    last_l0_clock_tick: int = CLOCK_TICK_MIN
    last_l0_seq: Seq = Seq(0)
    recent_snapshot_min_seq: Seq = Seq(0)
    checkpoints: tuple[Checkpoint, ...] = ()
    external_dbs: tuple[ExternalDb, ...] = ()
    sequence_tracker: bytes = EMPTY_SEQUENCE_TRACKER
    wal_object_store_uri: str | None = None
    exclusive: ExclusiveModes | None = None

    @property
    def max_parallel_writes(self) -> int:
        """The number of WAL files that a writer may write at the same time."""
        return 1 if self.exclusive is None else self.exclusive.max_parallel_writes

    @property
    def has_parallel_wal(self) -> bool:
        """Whether WAL files are written at the same time, so that one may be missing before the last one."""
        return self.max_parallel_writes > 1

    @property
    def wal_backend(self) -> str | None:
        """The name of the backend that keeps the WAL; ``None``: a store keeps it."""
        return None if self.exclusive is None else self.exclusive.wal_backend

    def trees(self) -> Iterator[tuple[bytes, Tree]]:
        """Yield the root tree with prefix ``b""``, then every segment by prefix."""
        yield b"", self.tree
        for segment in self.segments:
            yield segment.prefix, segment.tree

    def tree_of(self, prefix: bytes) -> Tree | None:
        """Return the tree of a segment (``b""``: the root); ``None`` if there is no such segment."""
        return next((tree for name, tree in self.trees() if name == prefix), None)

    def views(self) -> Iterator[SstView]:
        """Yield every view of every tree."""
        for _, tree in self.trees():
            yield from tree.views()

    def ssts(self) -> dict[Ulid, Sst]:
        """Return every physical SST that has a view, once, by id."""
        return {view.sst.id: view.sst for view in self.views()}

    def checkpoint(self, id: UUID) -> Checkpoint | None:  # noqa: A002 - the field's name
        """Return the checkpoint with this id, if it is listed."""
        return next((checkpoint for checkpoint in self.checkpoints if checkpoint.id == id), None)
