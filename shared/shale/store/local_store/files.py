"""The plain file operations under ``LocalStore``: synchronous, on paths as strings, raising ``OSError``."""

import errno
import fcntl
import itertools
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.core.open_file import nowait_flags
from shale.errors import AccessDenied, InvalidRequestError, ShaleError
from shale.store.adapter_errors import NotSupported, RequestFailed
from shale.store.port import ETag, ObjectMeta
from shale.telemetry.error_types import ErrorType

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_IMPOSSIBLE = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
_NO_LINKS = {errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS}
_NO_DIRECTORY_LOCKS = {errno.EBADF, errno.EACCES, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""A network file system may lock only files that are open for writing, which a directory never is."""
_IOV_MAX = 1024
_ZEROED_BYTES = 16 * 1024
"""Up to this size a ``bytearray`` costs less than an array, though it is zeroed."""


def etag_of(status: os.stat_result) -> ETag:
    """Return inode, mtime in microseconds and size, in hexadecimal, as SlateDB does."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


def meta_of(key: str, status: os.stat_result) -> ObjectMeta:
    """Return the metadata of a file."""
    return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000, etag_of(status))


def stage(path: str) -> tuple[str, int]:
    """Open a new file ``<path>#<n>`` for writing; create missing directories.

    Another process may remove an empty directory at any time (``prune``), so both steps are
    repeated until the file is open.
    """
    for number in itertools.count(1):
        staged = f"{path}#{number}"
        while True:
            try:
                return staged, os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                break
            except FileNotFoundError:
                _make_directories(Path(staged).parent)
    raise AssertionError("unreachable")


def stage_empty(path: str) -> str:
    """Create an empty file ``<path>#<n>`` for an upload.

    No descriptor is kept between two steps of an upload.  asyncio ends the wait of a cancelled task at once while the
    thread continues, and a descriptor that was closed in between may already belong to another object's file.
    """
    staged, fd = stage(path)
    os.close(fd)
    return staged


def append(staged: str, part: BytesLike) -> None:
    """Append to a staged file."""
    fd = os.open(staged, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        write_all(fd, [part])
    finally:
        os.close(fd)


def write_all_at(staged: str, data: memoryview, offset: int) -> None:
    """Write at an offset of a staged file, through the page cache."""
    fd = os.open(staged, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while len(data):
            written = os.pwrite(fd, data, offset)
            data = data[written:]
            offset += written
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Wait until the bytes of a file are on the disk, including those of other descriptors."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, buffers: Sequence[BytesLike]) -> None:
    """Write every byte of every buffer."""
    left = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while left:
        written = os.writev(fd, left[:_IOV_MAX])
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        del left[:done]
        if left and written:
            left[0] = left[0][written:]


def unset_buffer(size: int) -> memoryview:
    """Return a buffer of ``size`` bytes, not zeroed if large: callers must return only bytes that they have read."""
    return np.empty(size, np.uint8).data if size > _ZEROED_BYTES else memoryview(bytearray(size))


def read_into(fd: int, start: int, buffer: memoryview) -> int:
    """Fill ``buffer`` from byte ``start`` on and return the bytes read: fewer only if the file ends."""
    done = 0
    while done < len(buffer) and (count := os.preadv(fd, [buffer[done:]], start + done)):
        done += count
    return done


def read_cached(fd: int, start: int, buffer: memoryview) -> int:
    """As ``read_into``, but stop at the first byte that is not in the page cache, instead of waiting for the disk."""
    flags = nowait_flags(fd) if len(buffer) else None
    if flags is None:
        return 0
    try:
        return os.preadv(fd, [buffer], start, flags)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return 0
        raise


def remove(path: str) -> None:
    """Delete a file, which may be missing."""
    Path(path).unlink(missing_ok=True)


def prune(folder: Path, root: Path) -> None:
    """Remove empty directories from ``folder`` up to, but not including, ``root``."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def lock_file(path: str, held: ExitStack, *, create: bool) -> bool:
    """Lock a file until ``held`` is closed; return whether there is one."""
    try:
        _lock(os.open(path, os.O_RDWR | os.O_CREAT * create | os.O_CLOEXEC, 0o666), held)
    except FileNotFoundError:
        return False
    return True


def lock_directory(folder: str, held: ExitStack) -> bool:
    """Lock a directory until ``held`` is closed; return whether the file system can.  A missing one needs no lock."""
    try:
        _lock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), held)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in _NO_DIRECTORY_LOCKS:
            return False
        raise
    return True


def _lock(fd: int, held: ExitStack) -> None:
    held.callback(os.close, fd)
    fcntl.flock(fd, fcntl.LOCK_EX)


def sync_directory(folder: str) -> None:
    """Wait until the names in a directory are on the disk."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def translated(error: OSError, where: str) -> ShaleError:
    """Return the ``ShaleError`` for an ``OSError``; ``where`` is the URL of the object."""
    reason = f"{where}: {error.strerror or error}"
    if error.errno in _DENIED:
        return AccessDenied(reason)
    if error.errno in _NO_LINKS:
        return NotSupported("conditional put", where)
    if error.errno in _IMPOSSIBLE:
        return InvalidRequestError(reason)
    return RequestFailed(reason, ErrorType.INTERNAL)


def _make_directories(folder: Path) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # as below /proc: it would be retried for ever
        raise PermissionError(errno.EACCES, "no directory can be created", str(folder)) from error
    for made in missing:
        sync_directory(str(made.parent))
