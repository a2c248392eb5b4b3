"""The plain file operations under ``LocalStore``: synchronous, on paths as strings, raising ``OSError``."""

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shale.errors import AccessDenied, InvalidRequestError, ShaleError
from shale.store.failures import NotSupported, RequestFailed
from shale.store.port import Buffer, ETag, ObjectMeta
from shale.telemetry.error_types import ErrorType

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_IMPOSSIBLE = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
_NO_LINKS = {errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS}
_IOV_MAX = 1024
_ZEROED_BYTES = 16 * 1024
"""Up to here a ``bytearray`` costs less than an array, though it is zeroed."""


def etag_of(status: os.stat_result) -> ETag:
    """Inode, mtime in microseconds and size, in hexadecimal, as SlateDB's local store has it."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


def meta_of(key: str, status: os.stat_result) -> ObjectMeta:
    """What a listing says about a file."""
    return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000, etag_of(status))


def stage(path: str) -> tuple[str, int]:
    """A new file ``<path>#<n>``, open for writing; missing directories are made.

    Another process may remove an empty directory at any time (``prune``), so both steps are repeated until they fit.
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
    """A new empty file ``<path>#<n>`` for an upload.

    No descriptor is kept between two steps of an upload.  asyncio ends the wait of a cancelled task at once while the
    thread goes on, and a descriptor that was closed meanwhile may already belong to another object's file.
    """
    staged, fd = stage(path)
    os.close(fd)
    return staged


def append(staged: str, part: Buffer) -> None:
    """Write behind what a staged file holds."""
    fd = os.open(staged, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        write_all(fd, [part])
    finally:
        os.close(fd)


def write_all_at(staged: str, data: memoryview, offset: int) -> None:
    """Write at a place of a staged file, through the page cache."""
    fd = os.open(staged, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while len(data):
            written = os.pwrite(fd, data, offset)
            data = data[written:]
            offset += written
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Wait until the bytes of a file are on the disk, whoever wrote them."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
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
    """Room for ``size`` bytes, not zeroed where that costs: every byte of it that is handed out must have been read."""
    return np.empty(size, np.uint8).data if size > _ZEROED_BYTES else memoryview(bytearray(size))


def read_into(fd: int, start: int, room: memoryview) -> int:
    """Fill ``room`` from byte ``start`` on and return how many bytes came: fewer only if the file ends."""
    done = 0
    while done < len(room) and (count := os.preadv(fd, [room[done:]], start + done)):
        done += count
    return done


def read_cached(fd: int, start: int, room: memoryview) -> int:
    """Like ``read_into``, but stops where the page cache ends: never waits for the disk."""
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None or not len(room):
        return 0
    try:
        return os.preadv(fd, [room], start, flag)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
            return 0
        raise


def remove(path: str) -> None:
    """Delete a file that may be gone already."""
    Path(path).unlink(missing_ok=True)


def prune(folder: Path, root: Path) -> None:
    """Remove empty directories from ``folder`` up to, but not including, ``root``."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


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
    """Our error for one of the operating system's; ``where`` names the object by URL."""
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
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(str(made.parent))
