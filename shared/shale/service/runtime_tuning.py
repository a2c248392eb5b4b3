"""Tuning of the event loop, of the C allocator (glibc), of Python's cyclic garbage collector and of the limit of open
files, for daemons.
"""

import contextlib
import ctypes
import gc
import os
import resource
from importlib.util import find_spec

_M_ARENA_MAX = -8
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES_MAX = 32 << 20
"""The largest threshold that glibc accepts."""
_KEPT_PART = 32
"""Of a memory limit, the part that one freed buffer may keep: a merge has a few of them."""

_GC_THRESHOLDS = (2_000, 20, 200)
"""New containers between collections of the youngest generation, and of each older one in collections of the younger.

Closed connections are cyclic garbage, and nothing else runs during a collection: one of 20,000 objects takes 15 ms.
"""


_OPEN_FILES_MAX = 65_536
"""More than all ports take; programs that a daemon starts may visit every number up to the limit."""


def raise_open_files() -> None:
    """Raise the limit of open files, which a shell sets to 1,024, to what the process may have: a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems have a lower limit than they tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_within_open_files(limit: int, eighths: int) -> int:
    """Return how many connections a port may have, so that files are left for the store.

    Args:
        limit: of the settings.
        eighths: of the files that the process may open, the share of the port.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if soft == resource.RLIM_INFINITY else min(limit, max(1, soft * eighths // 8))


def has_uvloop() -> bool:
    """Return whether the extra ``server`` is installed: uvloop answers single requests up to half again as fast."""
    return find_spec("uvloop") is not None


def share_one_arena() -> None:
    """Let all threads allocate from one arena, unless ``MALLOC_ARENA_MAX`` is set.

    Large buffers pass between threads.  With glibc's default of an arena per thread, each arena keeps the memory that
    was freed in it, and compactions grow a process to twice its size.  Other C libraries have no such setting.
    """
    _set("MALLOC_ARENA_MAX", _M_ARENA_MAX, 1)


def reuse_large_buffers(limit_bytes: int | None = None) -> None:
    """Reuse freed large buffers, unless ``MALLOC_MMAP_THRESHOLD_`` is set.

    By default glibc maps each large buffer and unmaps it on free, and a fresh page costs more time than a merge spends
    on its bytes.  So large buffers come from the heap, which shrinks once as much at its end is free.

    Args:
        limit_bytes: the memory limit of the process.  Below 1 GiB, buffers that are large for it are mapped: the heap
            would keep holes between large values that no other value fits in.
    """
    kept = _KEPT_BYTES_MAX if limit_bytes is None else min(_KEPT_BYTES_MAX, limit_bytes // _KEPT_PART)
    _set("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, kept)
    _set("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, kept)


def tune_gc() -> None:
    """Collect the youngest objects often and all objects seldom, and exclude those that start-up created.

    A full collection visits every key and value of the memtable although they hold no references.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _set(variable: str, parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if variable not in os.environ and mallopt is not None:
        mallopt(parameter, value)
