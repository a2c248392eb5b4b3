"""Writes the WAL files of a restored database.

Their numbers are those of the backup plus an offset.  It is 0 in an empty path.  Where there are files of a replaced
database, or of an interrupted restore of another state, a fence follows them, and the restored files follow the fence.
"""

from shale.backup.copying import digest_bytes
from shale.backup.wal_end import Decoding, ReadCopy, WalEnd, same_rows
from shale.errors import InvalidDbState
from shale.protocol.wal_store import WalStore
from shale.types import Manifest


class RestoredWal:
    """The WAL of a restored database.

    Args:
        wal: its files.
        end: the files of the backup.
        replay_after: the files of the backup follow this number.
        read: reads a copy.
        target: decodes and decrypts files.
    """

    def __init__(self, wal: WalStore, end: WalEnd, replay_after: int, read: ReadCopy, target: Decoding) -> None:
        self._wal, self._end, self._replay_after = wal, end, replay_after
        self._read, self._target = read, target

    async def is_restored(self, manifest: Manifest) -> bool:
        """Return whether a complete database has these files, and no others."""
        offset = manifest.replay_after_wal_id - self._replay_after
        if manifest.next_wal_sst_id - 1 - manifest.replay_after_wal_id != self._end.count:
            return False
        for number in self._end.files:
            there = await self._wal.read(number + offset)
            if there is None or not await self._is_same(number, there):
                return False
        return True

    async def is_prefix(self) -> bool:
        """Return whether the files that are there are the first ones of those to write, with the offset 0."""
        for file in await self._wal.list():
            if file.id <= self._replay_after:
                continue
            there = await self._wal.read(file.id) if int(file.id) in self._end.files else None
            if there is None or not await self._is_same(int(file.id), there):
                return False
        return True

    async def fence(self, base: Manifest) -> int:
        """Put a fence after all files, and return the offset of the files that follow it."""
        number = max(int(await self._wal.last_seen_wal_id(base.replay_after_wal_id)) + 1, int(base.next_wal_sst_id))
        while not await self._wal.try_put_fence(number, epoch=base.writer_epoch):
            number += 1
        return number - self._replay_after

    async def drop_others(self, offset: int) -> None:
        """Delete the files before the fence, which an interrupted restore has left; no process has read them."""
        if offset:
            for file in await self._wal.list():
                if file.id < self._replay_after + offset:
                    await self._wal.delete(file.id)

    async def write(self, offset: int) -> None:
        """Write the files, except those that an interrupted restore has written.

        Raises:
            InvalidDbState: a process writes to the database.
        """
        for number, found in self._end.files.items():
            cut = self._end.cut_data(number)
            data = await self._read(found) if cut is None else cut
            if await self._wal.try_put(number + offset, data):
                continue
            there = await self._wal.read(number + offset)
            if there is None or not await self._is_same(number, there):
                raise InvalidDbState(
                    f"{self._wal.key(number + offset)} has other content: a process writes to the database that is "
                    "being restored: stop it, and run this again"
                )

    async def _is_same(self, number: int, there: memoryview) -> bool:
        """Return whether a file is the one to write.  A cut file that is encrypted has other bytes each time."""
        found = self._end.files[number]
        data = self._end.cut_data(number)
        if data is None:
            return len(there) == found.size and digest_bytes(there).sha256 == found.sha256
        return there == data or await same_rows(there, data, self._wal.key(number), self._target)
