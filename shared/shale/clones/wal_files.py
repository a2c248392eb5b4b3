"""The WAL of a clone's source: files to copy, files that forbid a projection, and files that are left out.

Source: docs/reference/protocol.md 10.2, steps 4, 5 and 8.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from shale.concurrency.gather import gather
from shale.errors import InvalidCloneSourceWithWal, InvalidDbState, WalTruncated
from shale.protocol.wal_completeness import wal_truncated
from shale.protocol.wal_store import WalStore
from shale.types import Manifest

T = TypeVar("T")

_READS_AT_ONCE = 4
"""Bounds memory: a file may be as large as a memtable."""
_SIZES_AT_ONCE = 16


def wal_range(manifest: Manifest) -> range:
    """Return the ids of the WAL files that the manifest's L0s do not contain."""
    return range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)


async def require_complete_wal(wal: WalStore, manifest: Manifest) -> None:
    """Check that the first and the last WAL file of a manifest exist.

    Raises:
        InvalidDbState: the WAL is in another store, or its files were deleted; names the first missing file.
    """
    wal_ids = wal_range(manifest)
    for wal_id in {wal_ids[0], wal_ids[-1]} if wal_ids else ():
        if not await wal.exists(wal_id):
            raise wal_truncated(wal, wal_id - 1, manifest)


async def require_no_rows(wal: WalStore, manifest: Manifest, path: str) -> None:
    """Check that all WAL files of the manifest are fences.

    Raises:
        InvalidCloneSourceWithWal: one has rows, which can be neither projected nor united.
        WalTruncated: one is gone.
    """
    async for wal_id, size in _each_file(wal, wal.size, wal_range(manifest), at_once=_SIZES_AT_ONCE):
        if size:
            raise InvalidCloneSourceWithWal(
                f"{wal.key(wal_id)} holds rows of {path or '/'} that are in no SST yet, and rows in a WAL can be "
                "neither projected nor united: flush the WAL and then the memtable, or open and close the "
                "database, after a compaction if its L0 is full"
            )


async def files_left_out(wal: WalStore, manifest: Manifest, before_ms: int | None = None) -> int:
    """Count the WAL files with rows that the manifest does not know.

    Args:
        before_ms: only count files written before this time, by the store's clock.
    """
    if before_ms is None and not await wal.exists(manifest.next_wal_sst_id):
        return 0
    count = 0
    async for page in wal.pages():
        unknown = [file for file in page if file.id >= manifest.next_wal_sst_id and not file.is_fence]
        count += sum(before_ms is None or file.last_modified_ms < before_ms for file in unknown)
    return count


async def copy_files(source: WalStore, target: WalStore, wal_ids: Sequence[int]) -> int:
    """Copy WAL files under the same ids, in order; existing copies are kept.

    Raises:
        WalTruncated: a source file is gone.
        InvalidDbState: the clone has another file under that id: a writer has opened it.
    """
    async for wal_id, data in _each_file(source, source.read, wal_ids, at_once=_READS_AT_ONCE):
        if await target.try_put(wal_id, data):
            continue
        present = await target.read(wal_id)
        if present is not None and present != data:
            raise InvalidDbState(
                f"{target.key(wal_id)} is not a copy of {source.key(wal_id)}: the clone was opened before it was "
                "complete; destroy it (destroy --hard) and start over"
            )
    return len(wal_ids)


async def _each_file(
    wal: WalStore, read: Callable[[int], Awaitable[T | None]], wal_ids: Sequence[int], *, at_once: int
) -> AsyncIterator[tuple[int, T]]:
    """Yield each id with what ``read`` returns for it, in order; ``at_once`` files are read together.

    Raises:
        WalTruncated: a file is gone.
    """
    for start in range(0, len(wal_ids), at_once):
        batch = wal_ids[start : start + at_once]
        results = await gather([partial(read, wal_id) for wal_id in batch])
        for wal_id, result in zip(batch, results, strict=True):
            if result is None:
                raise WalTruncated(wal_id, f"{wal.key(wal_id)} is not there")
            yield wal_id, result
