"""Reads rows straight from WAL files: in order, or all versions of a key.  No memtable is built.

Memory is that of a few files, however long the WAL is.  A WAL file has no filter, and its index is by sequence number,
so a lookup reads whole files, the newest first, up to the first one with the key.

Source: SlateDB rfcs/0004, "Establishing the Checkpoint" (readers that read directly from WAL SSTs).
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.engine.wal.file import decode_wal_file
from shale.engine.wal.replay import PRELOAD_FILES, wal_rows
from shale.env import Env
from shale.errors import InvalidRequestError, WalTruncated
from shale.kernels.rows import I64, Rows, entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_completeness import WalGap
from shale.protocol.wal_store import WalStore
from shale.types import Entry

OnWalGap = Callable[[WalGap], None]


class WalRow(NamedTuple):
    """A row as it is stored, also a tombstone or an operand, and the file that it is in."""

    wal_id: int
    entry: Entry


class WalReader:
    """The WAL of one database, which need not be open.

    All ids are included in their ranges.  By default a range has the files with rows that may not be in L0 yet.

    Args:
        wal: the files.
        manifests: say which files are needed, and whether files are written in parallel.
        env: CPU.
    """

    def __init__(self, wal: WalStore, manifests: ManifestStore, env: Env) -> None:
        self._wal = wal
        self._manifests = manifests
        self._env = env

    async def file_ids(self, first_id: int | None = None, last_id: int | None = None) -> range:
        """Return the ids of the files in a range.

        Raises:
            LatestRecordMissing: there is no database.
            InvalidRequestError: an id is not positive.
        """
        if any(each is not None and each < 1 for each in (first_id, last_id)):
            raise InvalidRequestError("ids of WAL files are positive")
        if first_id is None or last_id is None:
            latest = (await self._manifests.read_latest()).value
            after_id = latest.replay_after_wal_id
            first_id = after_id + 1 if first_id is None else first_id
            if last_id is None:
                # A search would take a lost file for the end.
                last_id = await self._wal.last_seen_wal_id(after_id, has_gaps=latest.has_parallel_wal)
                last_id = max(last_id, latest.next_wal_sst_id - 1)
        return range(first_id, max(first_id, last_id + 1))

    async def rows(
        self, first_id: int | None = None, last_id: int | None = None, *, on_gap: OnWalGap | None = None
    ) -> AsyncIterator[WalRow]:
        """Yield all rows of a range, in the order in which they were written.

        Args:
            first_id: the first file.
            last_id: the last file.
            on_gap: called with files that do not exist, which are then left out; ``None``: they are an error.

        Raises:
            WalTruncated: a file of the range does not exist; the rows before it were yielded.
            CorruptionError: a file is damaged.
        """
        wal_ids = await self.file_ids(first_id, last_id)
        start, end = wal_ids.start, wal_ids.stop - 1
        while start <= end:
            missing_id: int | None = None
            async for wal_id, rows in wal_rows(self._wal, start, end, self._env):
                if rows is None:
                    missing_id = wal_id
                    continue
                for entry in entries_from_rows(rows):
                    yield WalRow(wal_id, entry)
            if missing_id is None:
                return
            if on_gap is None:
                raise self._truncated(missing_id)
            later = await self._wal.ids_after(missing_id)
            start = int(later[0]) if later else end + 1
            on_gap(WalGap(missing_id, min(start - 1, end)))

    async def get(self, key: BytesLike, first_id: int | None = None, last_id: int | None = None) -> WalRow | None:
        """Return the newest row of a key, which may be a tombstone or an operand; ``None``: the range has none.

        Raises:
            WalTruncated: a file that had to be read does not exist.
            CorruptionError: such a file is damaged.
        """
        async for row in self.versions(key, first_id, last_id):
            return row
        return None

    async def versions(
        self,
        key: BytesLike,
        first_id: int | None = None,
        last_id: int | None = None,
        *,
        on_gap: OnWalGap | None = None,
    ) -> AsyncIterator[WalRow]:
        """Yield the rows of a key, the newest first.  Raises like ``get``, unless ``on_gap`` is given; see ``rows``."""
        wanted = bytes(key)
        wal_ids = (await self.file_ids(first_id, last_id))[::-1]
        for start in range(0, len(wal_ids), PRELOAD_FILES):
            batch = wal_ids[start : start + PRELOAD_FILES]
            for wal_id, rows in zip(batch, await gather([partial(self._read, each) for each in batch]), strict=True):
                if rows is None:
                    if on_gap is None:
                        raise self._truncated(wal_id)
                    on_gap(WalGap(wal_id, wal_id))
                    continue
                for index in reversed(_places_of(rows, wanted)):
                    yield WalRow(wal_id, *entries_from_rows(rows.slice(index, index + 1)))

    def _truncated(self, wal_id: int) -> WalTruncated:
        why = "it is lost, or GC deleted it after a flush; read again, or leave it out (on_gap, --allow-wal-gap)"
        return WalTruncated(wal_id, why, path=self._wal.key(wal_id))

    async def _read(self, wal_id: int) -> Rows | None:
        data = await self._wal.read(wal_id)
        if data is None:
            return None
        return await decode_wal_file(data, self._wal.key(wal_id), self._env, transformer=self._wal.transformer)


def _places_of(rows: Rows, key: bytes) -> list[int]:
    """Return the places of a key in rows of any order, ascending."""
    starts = rows.key_offsets[:-1]
    found: I64 = np.flatnonzero(rows.key_offsets[1:] - starts == len(key))
    for place in reversed(range(len(key))):  # keys differ most at their ends
        if not len(found):
            break
        found = found[rows.key_bytes[starts[found] + place] == key[place]]
    places: list[int] = found.tolist()
    return places
