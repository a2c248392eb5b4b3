"""Copies objects between stores in bounded memory, and computes their checksums on the way."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.crypto.key_names import NAME_BYTES_MAX, key_name_of
from shale.env import Env
from shale.errors import CorruptionError, SstMissing
from shale.store.port import ObjectStore

T = TypeVar("T")

CHUNK_BYTES = 8 << 20
"""Bytes of one range read.  A copy holds a few of them, so memory is bounded by the number of concurrent copies."""
CONCURRENCY = 4

_INLINE_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Progress of a copy or a check: objects and bytes, done and in total.  ``stage``: what is done."""

    stage: str
    done_objects: int
    total_objects: int
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[BackupProgress], None]


class Progress:
    """Counts what is done, and calls the listener."""

    def __init__(self, stage: str, objects: int, size: int, listener: OnProgress | None) -> None:
        self._stage = stage
        self._objects, self._size, self._listener = objects, size, listener
        self._done = self._done_bytes = 0

    def read(self, size: int) -> None:
        """Count bytes."""
        self._done_bytes += size
        self._report()

    def ended(self) -> None:
        """Count an object."""
        self._done += 1
        self._report()

    def _report(self) -> None:
        if self._listener is not None:
            self._listener(BackupProgress(self._stage, self._done, self._objects, self._done_bytes, self._size))


@dataclass(frozen=True, slots=True)
class Digest:
    """What the bytes of an object tell: size, SHA-256 in hexadecimal, and the key that it is encrypted with."""

    size: int
    sha256: str
    encryption_key: str | None


class _Hash(Protocol):
    def update(self, data: BytesLike, /) -> None: ...

    def hexdigest(self) -> str: ...


class ObjectReader:
    """Reads one object in chunks and computes its digest.

    Args:
        store: the store that has the object.
        key: its key.
        size: its bytes.
        env: runs the hash function in threads.
        on_bytes: called after each chunk with its size.
    """

    def __init__(self, store: ObjectStore, key: str, size: int, env: Env, on_bytes: Callable[[int], None]) -> None:
        self._store, self._key, self._size = store, key, size
        self._env, self._on_bytes = env, on_bytes
        self._hash: _Hash = hashlib.sha256()
        self._head = b""

    async def chunks(self) -> AsyncIterator[memoryview]:
        """Yield the bytes of the object.

        Raises:
            SstMissing: there is no such object.
        """
        for start in range(0, self._size, CHUNK_BYTES):
            chunk = await self._store.get_range(self._key, start, min(start + CHUNK_BYTES, self._size))
            if chunk is None:
                raise SstMissing(self._key.rpartition("/")[2], self._key)
            if not start:
                self._head = bytes(chunk[:NAME_BYTES_MAX])
            update = partial(self._hash.update, chunk)
            if len(chunk) > _INLINE_BYTES_MAX:
                await self._env.cpu.run(update)
            else:
                update()
            self._on_bytes(len(chunk))
            yield chunk

    @property
    def digest(self) -> Digest:
        """The digest, after all chunks were read."""
        return Digest(self._size, self._hash.hexdigest(), key_name_of(self._head))


async def copy_object(reader: ObjectReader, target: ObjectStore, key: str, expected: str | None = None) -> Digest:
    """Copy an object; nothing is visible under ``key`` before the last byte is in.

    Args:
        reader: the object, of which nothing was read yet.
        target: the other store.
        key: the key there.
        expected: the SHA-256 that it must have.

    Raises:
        CorruptionError: it has another SHA-256; nothing is written.
    """

    async def checked() -> AsyncIterator[BytesLike]:
        async for chunk in reader.chunks():
            yield chunk
        require_sha256(reader.digest, expected, key)

    await target.put_stream(key, checked())
    return reader.digest


async def digest_of(reader: ObjectReader) -> Digest:
    """Read an object and return its digest."""
    async for _ in reader.chunks():
        pass
    return reader.digest


def digest_bytes(data: BytesLike) -> Digest:
    """Return the digest of bytes in memory."""
    return Digest(len(data), hashlib.sha256(data).hexdigest(), key_name_of(bytes(memoryview(data)[:NAME_BYTES_MAX])))


def require_sha256(found: Digest, expected: str | None, path: str) -> None:
    """Check a digest.

    Raises:
        CorruptionError: the SHA-256 differs.
    """
    if expected is not None and found.sha256 != expected:
        raise CorruptionError(f"its SHA-256 is {found.sha256}, not {expected} as when it was copied", path=path)


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Call ``work`` for all items, ``concurrency`` at a time; the first error stops all."""
    waiting: Iterator[T] = iter(items)

    async def drain() -> None:
        for item in waiting:  # shared: a free task takes the next item
            await work(item)

    await gather([drain] * concurrency)
