"""A memtable that takes no more writes, and what its flush has to say in the manifest (docs/protocol.md 4.8)."""

from dataclasses import dataclass
from enum import Enum

from shale.engine.memtable import Memtable
from shale.engine.segments import ROOT_TREE
from shale.types import Sst


class UploadState(Enum):
    """Where a frozen table stands."""

    WAITING = "waiting"
    UPLOADING = "uploading"
    UPLOADED = "uploaded"


@dataclass(slots=True, kw_only=True, eq=False)
class FrozenTable:
    """Stamps are taken when the table is frozen and never change; the rest is progress.

    ``replay_after_wal_id``: every row of every WAL file up to it is in this table or an older one.  ``last_tick``: the
    newest commit time in the table, on the database's clock.  ``tracked``: (seq, second) pairs for the tracker.
    ``segments``: prefixes of the trees that its rows go to, ascending; ``b""`` alone is the root tree.  ``ssts``: what
    was uploaded for which of them; retention may leave no row of a segment.  ``sorted``: the table keeps sorted columns
    only.
    """

    table: Memtable
    first_seq: int
    last_seq: int
    last_tick: int
    replay_after_wal_id: int
    tracked: tuple[tuple[int, int], ...] = ()
    segments: tuple[bytes, ...] = ROOT_TREE
    size_bytes: int
    state: UploadState = UploadState.WAITING
    ssts: tuple[tuple[bytes, Sst], ...] = ()
    sorted: bool = False
