"""A cache of parts of SSTs in a directory, bounded in bytes; it survives restarts, and processes may share it.

A part is one file (``disk_part``), written under another name and renamed into place.  Reads open the file they need,
so processes see each other's parts without communication.  Each process evicts by its own list of names in order of
use.  It lists the directory again after it has written a 32nd of the bound, so each of several processes exceeds the
bound by that much at most.  A read never fails because of the disk: a directory that is full, read-only or missing is
a cache without hits.
"""

import contextlib
import math
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import BinaryIO, cast

from shale.core.bytes_like import BytesLike
from shale.core.open_file import LocalFiles, OpenFile
from shale.env import Clock, Env
from shale.errors import CorruptionError, InvalidRequestError
from shale.format.sst.info import decode_trailer
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.disk_part import NAME_BYTES, PartRange, encode_head, head_size, is_head_of, read_part
from shale.store.port import SstUploads
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

_RELIST_PART = 32
_PAUSE_S = 10.0
"""No writes for this time after a write has failed, as on a full disk."""
_STALE_S = 3600.0
"""An older unfinished file was left by a process that died."""
_UNFINISHED = ".new"
_FORMAT = "parts-1"
_FOOTER_BYTES = 256 << 10
"""At least this much of the end is held back: the footer is not cached, and its size is known at the end."""
log = get_logger("disk_cache")


class DiskCache:
    """The parts in one directory.  Thread-safe; every method may block on the disk."""

    def __init__(self, options: DiskCacheOptions, clock: Clock) -> None:
        """Create the directory; it is listed before the first part is written.

        Raises:
            InvalidRequestError: it cannot be created.
        """
        self.options = options
        self.evicted_keys = 0
        self.evicted_bytes = 0
        self.errors = 0
        self._clock = clock
        self._root = Path(options.directory) / _FORMAT
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total = 0
        self._written = 0
        self._is_listed = False
        self._paused_until_s = -math.inf
        self._silent_until_s = -math.inf
        self._numbers = count()
        self._local_files = LocalFiles()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequestError(f"disk_cache: {options.directory} cannot be used: {error}") from error

    @property
    def keys(self) -> int:
        """The number of known parts."""
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """The bytes of known parts."""
        return self._total

    def load(self, wanted: PartRange) -> bytes | None:
        """Return bytes of a part; ``None`` if they are missing or damaged."""
        file_name = _file_name(wanted.name, wanted.part)
        path = self._root / file_name
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._forget(file_name)
            return None
        except OSError as error:
            self._record_error(error)
            return None
        try:
            data = read_part(file, wanted)
            if data is not None:
                self._used(file_name, head_size(wanted.length) + wanted.length, path)
                return data
        except OSError as error:
            self._record_error(error)
        finally:
            os.close(file)
        self.drop(wanted.name, wanted.part)
        return None

    def has(self, name: bytes, part: int) -> bool:
        """Return whether a part is on disk, perhaps damaged."""
        return (self._root / _file_name(name, part)).exists()

    def open_part(self, wanted: PartRange) -> OpenFile | None:
        """Open a part for reads that do not wait; ``None`` if it is missing or damaged, or reading its head waits."""
        file = self._local_files.open(str(self._root / _file_name(wanted.name, wanted.part)))
        if file is None:
            return None
        head = memoryview(bytearray(head_size(wanted.length)))
        return file if file.read_into(head, 0) == len(head) and is_head_of(bytes(head), wanted) else None

    def name_of(self, part: PartRange) -> str:
        """Return the name of a part for ``note_use``."""
        return _file_name(part.name, part.part)

    def note_use(self, name: str) -> None:
        """Make a part the most recently used one, if it is known."""
        with self._lock:
            if name in self._sizes:
                self._sizes.move_to_end(name)

    def store(self, name: bytes, part: int, data: BytesLike) -> None:
        """Write a whole part."""
        now_s = self._clock.monotonic_s()
        if now_s < self._paused_until_s:
            return
        file_name = _file_name(name, part)
        head = encode_head(name, part, data)
        size = len(head) + len(data)
        path = self._root / file_name
        unfinished: Path | None = None
        try:
            self._make_room(size)
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished, opened = self._create()
            with opened as file:
                file.write(head)
                file.write(data)
            unfinished.replace(path)
        except OSError as error:
            self._record_error(error)
            self._paused_until_s = now_s + _PAUSE_S
            if unfinished is not None:
                _unlink(unfinished)
            self._shrink_to(self._total * 7 // 8)
            return
        self._enter(file_name, size)

    def drop(self, name: bytes, part: int) -> None:
        """Delete a part."""
        file_name = _file_name(name, part)
        _unlink(self._root / file_name)
        self._forget(file_name)

    def drop_object(self, name: bytes) -> None:
        """Delete all known parts of an object."""
        begin = _file_name(name, 0)[: -len("0")]
        with self._lock:
            parts = [int(known.removeprefix(begin)) for known in self._sizes if known.startswith(begin)]
        for part in parts:
            self.drop(name, part)

    def _create(self) -> tuple[Path, BinaryIO]:
        """Create a file of this process alone: in containers every process may have the id 1, also a dead one."""
        while True:
            path = self._root / f"{os.getpid()}-{next(self._numbers)}{_UNFINISHED}"
            with contextlib.suppress(FileExistsError):
                return path, path.open("xb")

    def _make_room(self, size: int) -> None:
        if not self._is_listed or self._written > self.options.max_bytes // _RELIST_PART:
            self._list_directory()
        self._shrink_to(self.options.max_bytes - size)

    def _shrink_to(self, size_bytes: int) -> None:
        """Delete the least recently used parts."""
        while True:
            with self._lock:
                if self._total <= size_bytes or not self._sizes:
                    return
                file_name, size = self._sizes.popitem(last=False)
                self._total -= size
                self.evicted_keys += 1
                self.evicted_bytes += size
            _unlink(self._root / file_name)

    def _enter(self, file_name: str, size: int) -> None:
        with self._lock:
            self._total += size - self._sizes.pop(file_name, 0)
            self._sizes[file_name] = size
            self._written += size

    def _used(self, file_name: str, size: int, path: Path) -> None:
        with self._lock:
            is_new = file_name not in self._sizes
            if is_new:
                self._sizes[file_name] = size
                self._total += size
            self._sizes.move_to_end(file_name)
        if is_new:
            with contextlib.suppress(OSError):
                os.utime(path)

    def _forget(self, file_name: str) -> None:
        with self._lock:
            self._total -= self._sizes.pop(file_name, 0)

    def _list_directory(self) -> None:
        """List the directory; new parts count as used when they were written."""
        listed = dict(sorted(self._files(), key=lambda item: item[1]))
        with self._lock:
            self._written, self._is_listed = 0, True
            known = [name for name in self._sizes if name in listed]
            unknown = [name for name in listed if name not in self._sizes]
            self._sizes = OrderedDict((name, listed[name][1]) for name in (*unknown, *known))
            self._total = sum(self._sizes.values())

    def _files(self) -> list[tuple[str, tuple[int, int]]]:
        """Return name, time of writing and size of every part; delete unfinished files of dead processes."""
        files = []
        stale_ns = (self._clock.now_ms() - int(_STALE_S * 1000)) * 1_000_000
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder) / name
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue  # another process deleted it
                if not name.endswith(_UNFINISHED):
                    files.append((str(path.relative_to(self._root)), (stat.st_mtime_ns, stat.st_size)))
                elif stat.st_mtime_ns < stale_ns:
                    _unlink(path)
        return files

    def _record_error(self, error: OSError) -> None:
        self.errors += 1
        now_s = self._clock.monotonic_s()
        if now_s >= self._silent_until_s:
            self._silent_until_s = now_s + _PAUSE_S
            log.warning(Event.DISK_CACHE_FAILED, directory=self.options.directory, error=error)


class CachingUploads:
    """Passes uploads on to a store and keeps a copy on disk; the disk never fails an upload.

    Args:
        store: gets the SSTs.
        store_url: identifies the store in the cache.
        cache: the parts on disk.
        env: writes files in threads.
    """

    def __init__(self, store: SstUploads, store_url: str, cache: DiskCache, env: Env) -> None:
        self._store = store
        self._store_url = store_url
        self._cache = cache
        self._env = env

    async def put(self, key: str, data: BytesLike | Sequence[BytesLike]) -> object:
        """See ``ObjectStore``."""
        stored = await self._store.put(key, data)
        copy = self._copy(key)
        pieces: Sequence[BytesLike] = data if isinstance(data, (list, tuple)) else (cast("BytesLike", data),)
        for piece in pieces:
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
        return _Copy(self._cache, object_name(self._store_url, key), self._env)


class _Copy:
    """The copy of one SST.  Its end is held back until the footer tells where the last section ends."""

    def __init__(self, cache: DiskCache, name: bytes, env: Env) -> None:
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


def store_parts(cache: DiskCache, name: bytes, first: int, data: BytesLike) -> None:
    """Write adjacent parts of an object from part ``first`` on."""
    view, step = memoryview(data), cache.options.part_bytes
    for part, at in enumerate(range(0, len(view), step), start=first):
        cache.store(name, part, view[at : at + step])


def object_name(store_url: str, key: str) -> bytes:
    """Return the name of an object, unique over all stores."""
    return blake2b(f"{store_url}\n{key}".encode(), digest_size=NAME_BYTES).digest()


def _file_name(name: bytes, part: int) -> str:
    text = name.hex()
    return f"{text[:2]}/{text[2:]}-{part}"


def _unlink(path: Path) -> None:
    """Delete a file; the next listing of the directory finds one that could not be deleted."""
    with contextlib.suppress(OSError):
        path.unlink()
