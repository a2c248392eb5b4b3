"""Short builders for manifests in tests of the collector's planners."""

from collections.abc import Iterable
from uuid import UUID

from shale.types import (
    Checkpoint,
    ExternalDb,
    Manifest,
    ManifestId,
    RunId,
    SortedRun,
    Sst,
    SstInfo,
    SstView,
    Tree,
    Ulid,
    WalId,
)


def ulid(ms: int, chance: int = 0) -> Ulid:
    """A ULID of a millisecond."""
    return Ulid.from_parts(ms, chance)


def view(ms: int, *, view_ms: int | None = None) -> SstView:
    """Return a view of an SST made in that millisecond, by default under the id of the SST."""
    sst = Sst(id=ulid(ms), info=SstInfo(first_entry=b"a", last_entry=b"z", index_offset=10, index_len=10))
    return SstView(id=ulid(ms if view_ms is None else view_ms), sst=sst)


def tree(*, l0: Iterable[int] = (), runs: Iterable[int] = (), watermark: int | None = None) -> Tree:
    """Return a tree of SSTs named by their milliseconds; all runs have one SST."""
    return Tree(
        l0=tuple(view(ms) for ms in l0),
        compacted=tuple(SortedRun(id=RunId(99 - number), ssts=(view(ms),)) for number, ms in enumerate(runs)),
        last_compacted_l0_sst_view_id=None if watermark is None else ulid(watermark),
    )


def wal_state(replay_after: int, next_id: int) -> Manifest:
    """Return a manifest with these WAL positions."""
    return Manifest(replay_after_wal_id=WalId(replay_after), next_wal_sst_id=WalId(next_id))


def checkpoint(manifest_id: int, *, expire_s: int = 0, number: int = 1) -> Checkpoint:
    """Return a checkpoint."""
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(manifest_id), expire_s=expire_s, create_s=1)


def external(path: str, *, final: int | None, ssts: Iterable[int] = ()) -> ExternalDb:
    """Return a parent; ``final`` numbers the checkpoint that the clone placed there."""
    return ExternalDb(
        path=path,
        source_checkpoint_id=UUID(int=1000),
        final_checkpoint_id=None if final is None else UUID(int=final),
        sst_ids=tuple(ulid(ms) for ms in ssts),
    )
