"""The WAL of a source: what a clone copies of it, what it cannot take, and what it does not see.

Source: docs/protocol.md 10.2, steps 4, 5 and 8.
"""

from collections.abc import Sequence
from functools import partial

from shale.errors import InvalidCloneSourceWithWal, InvalidDbState, WalTruncated
from shale.protocol.wal_place import cut_short
from shale.protocol.wal_store import WalStore
from shale.store.gather import gather
from shale.types import Manifest

_READS_AT_ONCE = 4
"""Files may be as large as a memtable."""
_SIZES_AT_ONCE = 16


def wal_range(manifest: Manifest) -> range:
    """The files that a manifest knows of and that its L0s do not contain."""
    return range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)


async def require_known_files(wal: WalStore, manifest: Manifest) -> None:
    """Return if the log that a manifest tells of is here, as far as its two ends show.

    Raises:
        InvalidDbState: it is in another store, or its files were deleted; names the first that is missing.
    """
    wal_ids = wal_range(manifest)
    for wal_id in {wal_ids[0], wal_ids[-1]} if wal_ids else ():
        if not await wal.exists(wal_id):
            raise cut_short(wal, wal_id - 1, manifest)


async def require_no_rows(wal: WalStore, manifest: Manifest, path: str) -> None:
    """Return if all files that the manifest knows of are fences.

    Raises:
        InvalidCloneSourceWithWal: one holds rows, which can be neither cut nor united.
        WalTruncated: one is gone.
    """
    wal_ids = wal_range(manifest)
    for start in range(0, len(wal_ids), _SIZES_AT_ONCE):
        batch = wal_ids[start : start + _SIZES_AT_ONCE]
        sizes = await gather([partial(wal.size, wal_id) for wal_id in batch])
        for wal_id, size in zip(batch, sizes, strict=True):
            if size is None:
                raise WalTruncated(wal_id, f"{wal.key(wal_id)} is not there")
            if size:
                raise InvalidCloneSourceWithWal(
                    f"{wal.key(wal_id)} holds rows of {path or '/'} that are in no SST yet, and rows in a WAL can be "
                    "neither projected nor united: flush the WAL and then the memtable, or open and close the "
                    "database, after a compaction if its L0 is full"
                )


async def files_left_out(wal: WalStore, manifest: Manifest, before_ms: int | None = None) -> int:
    """How many files with rows are there that the manifest does not know of.

    Args:
        before_ms: only count those that were there at that time, by the store's clock.
    """
    if before_ms is None and not await wal.exists(manifest.next_wal_sst_id):
        return 0
    count = 0
    async for page in wal.pages():
        behind = [file for file in page if file.id >= manifest.next_wal_sst_id and not file.is_fence]
        count += sum(before_ms is None or file.last_modified_ms < before_ms for file in behind)
    return count


async def copy_files(source: WalStore, target: WalStore, wal_ids: Sequence[int]) -> int:
    """Put files of one WAL under the same names into another, in their order; those that are there stay.

    Raises:
        WalTruncated: one is gone.
        InvalidDbState: there is another file under the name: somebody has written to the clone.
    """
    for start in range(0, len(wal_ids), _READS_AT_ONCE):
        batch = wal_ids[start : start + _READS_AT_ONCE]
        contents = await gather([partial(source.read, wal_id) for wal_id in batch])
        for wal_id, data in zip(batch, contents, strict=True):
            if data is None:
                raise WalTruncated(wal_id, f"{source.key(wal_id)} is not there")
            if await target.try_put(wal_id, data):
                continue
            present = await target.read(wal_id)
            if present is not None and present != data:
                raise InvalidDbState(
                    f"{target.key(wal_id)} is not a copy of {source.key(wal_id)}: somebody has opened the clone before "
                    "it was finished; destroy it (destroy --hard) and begin again"
                )
    return len(wal_ids)
