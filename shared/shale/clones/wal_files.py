"""The WAL of a clone's source: files to copy, and files that are left out.

Source: docs/reference/protocol.md 10.2, steps 4, 5 and 8.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from shale.concurrency.gather import gather
from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.errors import CorruptionError, InvalidDbState, WalTruncated
from shale.protocol.wal_completeness import wal_truncated
from shale.protocol.wal_store import WalFile, WalStore
from shale.types import Manifest, WalId

T = TypeVar("T")

_READS_AT_ONCE = 4
"""Bounds memory: a file may be as large as a memtable."""


def wal_range(manifest: Manifest) -> range:
    """Return the ids of the WAL files that the manifest's L0s do not contain."""
    return range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)


def without_wal(manifest: Manifest) -> Manifest:
    """Return the manifest with an empty WAL range: the WAL of a projection may hold rows that the clone must not show.

    Its rows are in L0s, there limited to the range (``with_wal_in_l0``).
    """
    return replace(manifest, replay_after_wal_id=WalId(manifest.next_wal_sst_id - 1))


async def require_complete_wal(wal: WalStore, manifest: Manifest) -> None:
    """Check that the first and the last WAL file of a manifest exist.

    Raises:
        InvalidDbState: the WAL is in another store, or its files were deleted; names the first missing file.
    """
    wal_ids = wal_range(manifest)
    for wal_id in {wal_ids[0], wal_ids[-1]} if wal_ids else ():
        if not await wal.exists(wal_id):
            raise wal_truncated(wal, wal_id - 1, manifest)


async def files_left_out(wal: WalStore, manifest: Manifest, env: Env, before_ms: int | None = None) -> int:
    """Count the WAL files that the manifest does not know and that hold rows which are not in its L0s.

    Args:
        before_ms: only count files written before this time, by the store's clock.
    """
    unknown: list[WalFile] = []
    # Not a probe of the next file: if that one is lost, there may be others after it.
    async for page in wal.pages(after=manifest.next_wal_sst_id - 1):
        later = (file for file in page if not file.is_fence)
        unknown += (file for file in later if before_ms is None or file.last_modified_ms < before_ms)
    # Sequence numbers ascend from file to file: after the first file with later rows, every file has later rows.
    for index, file in enumerate(unknown):
        if await _holds_rows_after(wal, file.id, manifest.last_l0_seq, env):
            return len(unknown) - index
    return 0


async def _holds_rows_after(wal: WalStore, wal_id: int, seq: int, env: Env) -> bool:
    data = await wal.read(wal_id)
    if data is None:
        return False
    try:
        rows = await decode_wal_file(data, wal.key(wal_id), env, transformer=wal.transformer)
    except CorruptionError:
        return True  # It is damaged, or encrypted with a key that was not given: it may hold any row.
    return bool(len(rows)) and int(rows.seq[-1]) > seq


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
