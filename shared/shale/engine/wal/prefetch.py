"""Reads the WAL ahead of a takeover, so that replay finds the rows in memory (docs/reference/protocol.md 4.6).

A WAL file is created once and never changes, so its rows may be read long before the epoch is claimed.  What the claim
decides is which files there are: it searches for the end of the WAL, fences it, and takes rows from here for ids that
it would read anyway.  Only a database that was restored or made anew has another file under an id; ``take`` compares
what was read with a listing.
"""

from dataclasses import replace
from functools import partial

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.kernels.rows import I64, U8, Rows
from shale.protocol.wal_store import WalFile, WalStore
from shale.types import Manifest

_FILES_AT_ONCE = 16
_SPARE_SHARE = 8
"""Buffers with less unused room than this share of their bytes are not copied."""


@dataclass(frozen=True, slots=True)
class _PrefetchedFile:
    file: WalFile
    rows: Rows

    @property
    def size_bytes(self) -> int:
        """The memory of the rows."""
        rows = self.rows
        columns = (rows.key_offsets, rows.val_offsets, rows.seq, rows.flags, rows.create_ts, rows.expire_ts)
        return rows.key_bytes.nbytes + rows.val_bytes.nbytes + sum(column.nbytes for column in columns)


class WalPrefetch:
    """The rows of the first files that replay would read, as many as fit.

    Args:
        wal: the files.
        env: CPU.
        bytes_max: the memory for rows; the last file read, or those read at the same time, may exceed it.
    """

    def __init__(self, wal: WalStore, env: Env, *, bytes_max: int) -> None:
        self.size_bytes = 0
        self._wal = wal
        self._env = env
        self._bytes_max = bytes_max
        self._files: dict[int, _PrefetchedFile] = {}
        self._next_id = 0
        self._origin = (0, 0)

    @property
    def file_count(self) -> int:
        """The number of files whose rows are kept."""
        return len(self._files)

    async def advance(self, manifest: Manifest) -> None:
        """Drop files whose rows are in L0, and read those that were written since.

        Args:
            manifest: the newest one.

        Raises:
            CorruptionError: a file is damaged.
            UnavailableError: the store does not answer.
        """
        origin = (manifest.writer_epoch, manifest.replay_after_wal_id)
        if origin[0] < self._origin[0] or origin[1] < self._origin[1]:
            self.clear()  # Another database is in this place.
        self._origin = origin
        self._drop_through(manifest.replay_after_wal_id)
        files, count = self._files, 1
        while (count := min(count, self._room_files())) > 0:
            wal_ids = range(self._next_id, self._next_id + count)
            contents = await gather([partial(self._try_read, wal_id) for wal_id in wal_ids])
            for wal_id, found in zip(wal_ids, contents, strict=True):
                if self._files is not files or found is None:
                    return
                files[wal_id] = found
                self.size_bytes += found.size_bytes
                self._next_id = wal_id + 1
            count = min(2 * count, _FILES_AT_ONCE)

    async def take(self) -> dict[int, Rows]:
        """Return the rows by file, without those of files that are gone or were replaced; afterwards nothing is kept.

        Raises:
            UnavailableError: the store does not answer.
        """
        files = self._files
        self.clear()
        if not files:
            return {}
        found: dict[int, Rows] = {}
        async for page in self._wal.pages(after=min(files) - 1):
            for listed in page:
                known = files.get(listed.id)
                if known is not None and known.file.is_same(listed):
                    found[listed.id] = known.rows
        return found

    def clear(self) -> None:
        """Keep nothing; the next ``advance`` begins anew."""
        self._files = {}
        self.size_bytes = 0
        self._next_id = 0
        self._origin = (0, 0)

    def _drop_through(self, wal_id: int) -> None:
        for each in [known for known in self._files if known <= wal_id]:
            self.size_bytes -= self._files.pop(each).size_bytes
        self._next_id = max(self._next_id, wal_id + 1)

    def _room_files(self) -> int:
        """Return how many more files fit, if the next ones are as large as the largest one that is kept."""
        room = self._bytes_max - self.size_bytes
        if room <= 0:
            return 0
        largest = max((each.size_bytes for each in self._files.values()), default=0)
        return max(1, room // max(largest, 1))

    async def _try_read(self, wal_id: int) -> _PrefetchedFile | None:
        found = await self._wal.read_file(wal_id)
        if found is None:
            return None
        file, data = found
        rows = await decode_wal_file(data, self._wal.key(wal_id), self._env, transformer=self._wal.transformer)
        return _PrefetchedFile(file, _without_spare_room(rows))


def _without_spare_room(rows: Rows) -> Rows:
    """Return the rows in buffers that are about as large as their bytes; those of a decoder may be twice as large."""
    return replace(
        rows, key_bytes=_trimmed(rows.key_bytes, rows.key_offsets), val_bytes=_trimmed(rows.val_bytes, rows.val_offsets)
    )


def _trimmed(data: U8, offsets: I64) -> U8:
    used = int(offsets[-1])
    return data if data.nbytes - used <= used // _SPARE_SHARE else data[:used].copy()
