"""A directory as a store, with conditional updates, for several processes on one machine (docs/reference/protocol.md
0.1).

Objects are plain files.  A put writes ``<name>#<n>`` next to its target, waits for the disk, and then

* ``create`` makes a hard link under the final name, which fails if the name is taken;
* ``update`` renames, after comparing etags, under an exclusive lock on the directory of the target;
* ``overwrite`` renames, under the same lock, so that an update never undoes it unseen.

The lock is on the directory itself, which every URL of the same object reaches, and leaves no file.  A lock file in the
root of the store, which earlier releases made, is locked, too, where it exists.

SlateDB stages its files alike, so both can share a directory; neither lists staged files.  The etag is inode, mtime
and size, in SlateDB's own notation.  There is no user metadata (docs/reference/protocol.md 1.5 says what follows from
that).
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import anyio
import anyio.to_thread

from shale.core.bytes_like import BytesLike
from shale.core.open_file import LocalFiles
from shale.errors import AlreadyExists, CorruptionError, InvalidRequestError, NotFoundError, Precondition, ShaleError
from shale.store.local_store import files
from shale.store.local_store.upload import IS_POSSIBLE, BufferedUpload, DirectUpload
from shale.store.location import directory_of, parse_store_url
from shale.store.port import (
    LIST_PAGE,
    NOT_MODIFIED,
    OVERWRITE,
    Create,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    OpenLocal,
    PutMode,
    Update,
)

T = TypeVar("T")

LOCK_NAME = ".shale.lock"
INLINE_READ_BYTES = 2 * 1024 * 1024
"""A read up to this size that the page cache can answer happens on the event loop, within a millisecond.

A thread costs more: 200 to 400 µs, whereas copying a megabyte takes 60 to 120 µs.
"""

_LOCKED_DELETES = 100
"""Deletions under one lock: some milliseconds, for which an update of another process waits."""

_STAGED = re.compile(r"#[0-9]+$")


class LocalStore:
    """The store ``file://<directory>``.  The first put creates the directory."""

    def __init__(self, directory: str | Path, *, fsync: bool = True, threads: int = 16) -> None:
        path = Path(directory)
        if not path.is_absolute():
            raise InvalidRequestError(f"{directory}: the directory of a store is an absolute path")
        self._url = parse_store_url(f"file://{path.as_posix().replace('%', '%25')}")
        self._root = directory_of(self._url)
        self._fsync = fsync
        self._writes_directly = fsync and IS_POSSIBLE
        self._threads = threads
        self._limiter: anyio.CapacityLimiter | None = None
        self._local_files = LocalFiles()

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return False

    @property
    def open_local(self) -> OpenLocal | None:
        """See ``LocalReads``."""
        return lambda key: self._local_files.open(self._path(key))

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        with self._translated(key):
            opened = self._open(key)
            if opened is None:
                return None
            fd, meta = opened
            return GetResult(await self._read(fd, 0, meta.size), meta)

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        meta = await self.head(key)
        if meta is None:
            return None
        return NOT_MODIFIED if meta.etag == etag else await self.get(key)

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        with self._translated(key):
            opened = self._open(key)
            if opened is None:
                return None
            fd, meta = opened
            data = await self._read(fd, start, max(min(end, meta.size) - start, 0))
        if end > meta.size:
            raise CorruptionError(
                f"the object ends at byte {meta.size}, bytes {start} to {end} were wanted", path=key, offset=meta.size
            )
        return data

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        with self._translated(key):
            try:
                return files.meta_of(key, os.stat(self._path(key)))  # noqa: PTH116 - the cheapest call there is
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return None

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,  # noqa: ARG002 - a directory keeps none
    ) -> ETag | None:
        """See ``ObjectStore``."""
        # A variable, because type checkers disagree on what the test says about a memoryview, which is a sequence, too.
        is_one = isinstance(data, BytesLike)
        buffers = cast("Sequence[BytesLike]", (data,) if is_one else data)
        return await self._in_thread(key, lambda: self._put(key, buffers, mode))

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``."""
        path = self._path(key)
        staged = await self._in_thread(key, lambda: files.stage_empty(path))
        upload = DirectUpload(staged) if self._writes_directly else BufferedUpload(staged)
        try:
            async for part in parts:
                await self._in_thread(key, partial(upload.append, part))
            await self._in_thread(key, lambda: self._finish(upload, staged, path))
        except BaseException:
            # A staged file is invisible; it is removed also when this task was cancelled.
            files.remove(staged)
            raise

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._in_thread(key, lambda: self._delete(key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        self._check_root()
        folder = prefix.rstrip("/")
        return await self._in_thread(prefix, lambda: list(self._walk(folder)))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  Keeps the names of one directory in memory, to sort them."""
        self._check_root()
        found = (meta for meta in self._walk(prefix.rstrip("/")) if meta.key > after)
        while page := await self._in_thread(prefix, lambda: list(itertools.islice(found, LIST_PAGE))):
            yield page
            if len(page) < LIST_PAGE:
                return

    async def list_staging(self, prefix: str) -> Sequence[ObjectMeta]:
        """See ``StagingFiles``."""
        return await self._in_thread(prefix, lambda: [*self._walk(prefix.rstrip("/"), is_staging=True)])

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  The lock is released between batches."""
        problems: dict[str, ShaleError] = {}
        for first in range(0, len(keys), _LOCKED_DELETES):
            batch = keys[first : first + _LOCKED_DELETES]
            problems |= await self._in_thread(batch[0], partial(self._delete_batch, batch))
        return problems

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self._in_thread(source, lambda: self._copy(source, destination))

    async def aclose(self) -> None:
        """See ``ObjectStore``."""

    def _path(self, key: str) -> str:
        assert key, "an object has a name"
        assert ".." not in key.split("/"), f"{key} leaves the store"
        return f"{self._root}/{key}"

    def _open(self, key: str) -> tuple[int, ObjectMeta] | None:
        """Open a file and return it with its metadata; the caller must pass it to ``_read``, which closes it."""
        try:
            fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return None
        return fd, files.meta_of(key, os.fstat(fd))

    async def _read(self, fd: int, start: int, size: int) -> memoryview:
        """Read and close an open file; the result is shorter than ``size`` only if the file ends."""
        buffer = files.unset_buffer(size)
        try:
            done = files.read_cached(fd, start, buffer) if size <= INLINE_READ_BYTES else 0
            if done < size:
                done += await self._hop(lambda: files.read_into(fd, start + done, buffer[done:]))
        finally:
            os.close(fd)
        return buffer if done == size else buffer[:done]

    def _put(self, key: str, buffers: Sequence[BytesLike], mode: PutMode) -> ETag:
        path = self._path(key)
        if isinstance(mode, Create) and os.path.lexists(path):
            raise AlreadyExists(f"{key} exists")
        staged, fd = files.stage(path)
        try:
            try:
                files.write_all(fd, buffers)
                self._sync(fd)
                etag = files.etag_of(os.fstat(fd))
            finally:
                os.close(fd)
            match mode:
                case Create():
                    self._link(key, staged, path)
                case Update(etag=expected):
                    self._update(key, staged, path, expected)
                case _:
                    self._overwrite(staged, path)
        except BaseException:
            files.remove(staged)
            raise
        return etag

    def _link(self, key: str, staged: str, path: str) -> None:
        try:
            os.link(staged, path)
        except FileExistsError as error:
            raise AlreadyExists(f"{key} exists") from error
        files.remove(staged)
        self._sync_directory(path)

    def _update(self, key: str, staged: str, path: str, expected: ETag) -> None:
        with self._lock(path):
            try:
                found = files.etag_of(os.stat(path))  # noqa: PTH116 - strings all the way down here
            except FileNotFoundError as error:
                raise Precondition(f"{key} is gone") from error
            if found != expected:
                raise Precondition(f"{key} is of another version")
            os.replace(staged, path)  # noqa: PTH105
        self._sync_directory(path)

    def _overwrite(self, staged: str, path: str) -> None:
        with self._lock(path):
            os.replace(staged, path)  # noqa: PTH105
        self._sync_directory(path)

    def _finish(self, upload: DirectUpload | BufferedUpload, staged: str, path: str) -> None:
        upload.finish()
        if isinstance(upload, DirectUpload) and upload.was_refused:
            self._writes_directly = False
        if self._fsync:
            files.sync_file(staged)
        self._overwrite(staged, path)

    def _delete(self, key: str) -> None:
        path = self._path(key)
        if os.path.lexists(path):
            with self._lock(path):
                files.remove(path)
        # Not of ``path``, which begins with two slashes in the store of the root directory: another root to pathlib.
        files.prune(Path(self._root, key).parent, Path(self._root))

    def _delete_batch(self, keys: Sequence[str]) -> dict[str, ShaleError]:
        problems: dict[str, ShaleError] = {}
        folders = defaultdict(list)
        for key in keys:
            folders[key.rpartition("/")[0]].append(key)
        for folder, inside in folders.items():
            path = Path(self._root, folder)
            if path.is_dir():
                problems |= self._delete_in_folder(inside)
                files.prune(path, Path(self._root))
        return problems

    def _delete_in_folder(self, keys: Sequence[str]) -> dict[str, ShaleError]:
        problems: dict[str, ShaleError] = {}
        with self._lock(self._path(keys[0])):
            for key in keys:
                try:
                    files.remove(self._path(key))
                except OSError as error:
                    problems[key] = files.translated(error, f"{self._url}/{key}")
        return problems

    def _copy(self, source: str, destination: str) -> None:
        try:
            data = Path(self._path(source)).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{source} does not exist") from error
        self._put(destination, [data], OVERWRITE)

    def _walk(self, folder: str, *, is_staging: bool = False) -> Iterator[ObjectMeta]:
        """Yield every object below a folder, or the files that puts have staged there, ascending by key."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                # A folder sorts with the keys below it, which have a slash after its name.
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            key = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                yield from self._walk(key[:-1], is_staging=is_staging)
            elif bool(_STAGED.search(name)) == is_staging and key != LOCK_NAME:
                try:
                    yield files.meta_of(key, os.stat(f"{self._root}/{key}"))  # noqa: PTH116
                except FileNotFoundError:
                    continue

    @contextmanager
    def _lock(self, path: str) -> Iterator[None]:
        """Exclude updates of the same object; the operating system releases the locks of a dead process.

        Every process takes the lock file first, so two of them never wait for each other.
        """
        file, folder = f"{self._root}/{LOCK_NAME}", os.path.dirname(path)  # noqa: PTH120 - strings all the way down
        with ExitStack() as held:
            has_lock = files.lock_file(file, held, create=False)
            if not files.lock_directory(folder, held) and not has_lock:
                files.lock_file(file, held, create=True)
            yield

    def _sync(self, fd: int) -> None:
        if self._fsync:
            os.fsync(fd)

    def _sync_directory(self, path: str) -> None:
        if self._fsync:
            files.sync_directory(os.path.dirname(path))  # noqa: PTH120 - strings all the way down here

    def _check_root(self) -> None:
        """Accept an absent directory as an empty store, but no other file of that name."""
        root = Path(self._root)
        if not root.is_dir() and root.exists():
            raise InvalidRequestError(f"{self._url} is not a directory")

    async def _in_thread(self, key: str, work: Callable[[], T]) -> T:
        with self._translated(key):
            return await self._hop(work)

    async def _hop(self, work: Callable[[], T]) -> T:
        """Run blocking calls in a thread.  A cancelled caller waits for the thread to finish."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise files.translated(error, f"{self._url}/{key}") from error
