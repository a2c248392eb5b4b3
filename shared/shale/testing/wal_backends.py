"""A WAL backend in memory, and the checks that every backend must pass."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.env import Clock, SystemClock
from shale.store.wal_backend import WalBackend, WalEntry


class MemoryWalBackend:
    """The reference implementation; every method takes one step of the event loop."""

    def __init__(self, name: str = "memory", clock: Clock | None = None) -> None:
        self.name = name
        self._clock = clock if clock is not None else SystemClock()
        self.files: dict[str, dict[int, tuple[WalEntry, bytes]]] = {}
        """The files by path and id; tests inspect and damage them here."""

    async def put(self, path: str, wal_id: int, data: bytes, *, epoch: int | None, put_id: str) -> bool:
        """See ``WalBackend``."""
        entry = WalEntry(id=wal_id, size=len(data), written_ms=self._clock.now_ms(), epoch=epoch, put_id=put_id)
        return self.files.setdefault(path, {}).setdefault(wal_id, (entry, data))[0] is entry

    async def read(self, path: str, wal_id: int) -> BytesLike | None:
        """See ``WalBackend``."""
        found = self.files.get(path, {}).get(wal_id)
        return None if found is None else found[1]

    async def stat(self, path: str, wal_id: int) -> WalEntry | None:
        """See ``WalBackend``."""
        found = self.files.get(path, {}).get(wal_id)
        return None if found is None else found[0]

    async def list(self, path: str, *, after: int, limit: int) -> Sequence[WalEntry]:
        """See ``WalBackend``."""
        files = self.files.get(path, {})
        return [files[wal_id][0] for wal_id in sorted(files) if wal_id > after][:limit]

    async def delete(self, path: str, wal_ids: Sequence[int]) -> None:
        """See ``WalBackend``."""
        for wal_id in wal_ids:
            self.files.get(path, {}).pop(wal_id, None)


async def check_wal_backend(backend: WalBackend, path: str = "checked") -> None:
    """Check that a backend does what ``WalBackend`` says; ``path`` must have no files, and has none afterwards.

    Raises:
        AssertionError: names the rule that the backend breaks.
    """
    await _check_files(backend, path)
    await _check_one_writer_wins(backend, path)
    await _check_paths_are_apart(backend, path)
    await backend.delete(path, range(1, 21))
    assert not await backend.list(path, after=0, limit=100), "deleted files are not listed"


async def _check_files(backend: WalBackend, path: str) -> None:
    assert not await backend.list(path, after=0, limit=10), "the path must have no files"
    assert await backend.read(path, 1) is None, "a missing file has no bytes"
    assert await backend.stat(path, 1) is None, "a missing file is not described"
    for wal_id in (3, 1, 2):
        data = b"" if wal_id == 2 else b"file %d" % wal_id
        assert await backend.put(path, wal_id, data, epoch=7, put_id=f"put-{wal_id}"), "a free id takes a file"
    assert bytes(await backend.read(path, 3) or b"") == b"file 3", "a file has the bytes that were put"
    fence = await backend.read(path, 2)
    assert fence is not None, "an empty file exists"
    assert not len(fence), "an empty file is empty"
    entries = await backend.list(path, after=0, limit=10)
    sizes = [(entry.id, entry.size) for entry in entries]
    assert sizes == [(1, 6), (2, 0), (3, 6)], "a listing is in the order of ids, with sizes"
    assert [entry.id for entry in await backend.list(path, after=1, limit=1)] == [2], "after and limit hold"
    stat = await backend.stat(path, 3)
    assert stat is not None, "a file is described"
    wanted = replace(entries[2], epoch=7, put_id="put-3")
    assert stat == wanted, "a description is that of the listing, with epoch and put id"


async def _check_one_writer_wins(backend: WalBackend, path: str) -> None:
    assert not await backend.put(path, 3, b"late", epoch=8, put_id="late"), "a taken id takes no other file"
    assert bytes(await backend.read(path, 3) or b"") == b"file 3", "a refused put changes nothing"

    async def put(number: int) -> bool:
        return await backend.put(path, 4, b"%d" % number, epoch=8, put_id=str(number))

    won = await gather([partial(put, number) for number in range(5)])
    assert sum(won) == 1, "of concurrent puts with one id one succeeds"
    kept = bytes(await backend.read(path, 4) or b"")
    assert kept == b"%d" % won.index(True), "the file is that of the put that succeeded"


async def _check_paths_are_apart(backend: WalBackend, path: str) -> None:
    other = f"{path}/other"
    assert await backend.read(other, 1) is None, "another database has its own files"
    assert await backend.put(other, 1, b"other", epoch=None, put_id=""), "another database has its own ids"
    assert bytes(await backend.read(path, 1) or b"") == b"file 1", "files of databases are apart"
    await backend.delete(other, [1, 99])
    assert await backend.read(other, 1) is None, "a deleted file is gone"
