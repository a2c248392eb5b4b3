"""Uploads of SSTs that also fill the disk cache, so that the first reads of a new SST need no request."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from shale.core.bytes_like import BytesLike
from shale.env import Env
from shale.errors import CorruptionError
from shale.format.sst.info import decode_trailer

if TYPE_CHECKING:
    from shale.sst.disk_cache import DiskCache

_FOOTER_BYTES = 256 << 10
"""At least this much of the end is held back: the footer is not cached, and its size is known at the end."""


class SstUploads(Protocol):
    """Where new SSTs go: a store, or a ``CachingUploads`` on top of one."""

    async def put(self, key: str, data: BytesLike | Sequence[BytesLike]) -> object:
        """See ``ObjectStore``."""
        ...

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        ...


class CachingUploads:
    """Passes uploads on to a store and keeps a copy on disk; the disk never fails an upload.

    Args:
        store: gets the SSTs.
        store_url: identifies the store in the cache.
        cache: the parts on disk.
        env: writes files in threads.
    """

    def __init__(self, store: SstUploads, store_url: str, cache: "DiskCache", env: Env) -> None:
        self._store = store
        self._store_url = store_url
        self._cache = cache
        self._env = env

    async def put(self, key: str, data: BytesLike | Sequence[BytesLike]) -> object:
        """See ``ObjectStore``."""
        stored = await self._store.put(key, data)
        copy = self._copy(key)
        for piece in (data,) if isinstance(data, BytesLike) else data:
            await copy.add(piece)
        await copy.finish()
        return stored

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``.  An upload that fails leaves no copy: another attempt may have other bytes."""
        copy = self._copy(key)
        try:
            await self._store.put_stream(key, copy.passing(parts))
            await copy.finish()
        except BaseException:
            copy.discard()
            raise

    def _copy(self, key: str) -> "_Copy":
        from shale.sst.disk_cache import object_name

        return _Copy(self._cache, object_name(self._store_url, key), self._env)


class _Copy:
    """The copy of one SST.  Its end is held back until the footer tells where the last section ends."""

    def __init__(self, cache: "DiskCache", name: bytes, env: Env) -> None:
        self._cache = cache
        self._name = name
        self._env = env
        self._step = cache.options.part_bytes
        self._rest = bytearray()
        self._stored = 0
        """Parts on disk."""

    async def passing(self, parts: AsyncIterable[BytesLike]) -> AsyncIterator[BytesLike]:
        """Yield all bytes and keep them."""
        async for part in parts:
            await self.add(part)
            yield part

    async def add(self, data: BytesLike) -> None:
        """Keep the next bytes."""
        self._rest += data
        if (ready := (len(self._rest) - _FOOTER_BYTES) // self._step) > 0:
            await self._write(ready * self._step)

    async def finish(self) -> None:
        """Write what was held back, without the footer."""
        begin = self._stored * self._step
        try:
            info, _ = decode_trailer(self._rest, object_size=begin + len(self._rest))
        except CorruptionError:  # a footer that is larger than what is held back
            self.discard()
            return
        if info.sections_end > begin:
            await self._write(info.sections_end - begin)

    def discard(self) -> None:
        """Delete the copy."""
        self._cache.drop_object(self._name)

    async def _write(self, size: int) -> None:
        """Write the first bytes of the rest as parts; only the last part of an SST is shorter than the others."""
        data = bytes(memoryview(self._rest)[:size])
        del self._rest[:size]
        await self._env.cpu.run(partial(store_parts, self._cache, self._name, self._stored, data))
        self._stored += -(-size // self._step)


def store_parts(cache: "DiskCache", name: bytes, first: int, data: BytesLike) -> None:
    """Write adjacent parts of an object from part ``first`` on."""
    view, step = memoryview(data), cache.options.part_bytes
    for part, at in enumerate(range(0, len(view), step), start=first):
        cache.store(name, part, view[at : at + step])
