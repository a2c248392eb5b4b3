"""Keeps the C allocator from hoarding memory, and from fetching it again and again."""

import ctypes
import os

_M_ARENA_MAX = -8
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 32 << 20
"""The largest threshold that glibc takes."""


def share_one_arena() -> None:
    """Let all threads allocate from one heap, unless ``MALLOC_ARENA_MAX`` says otherwise.

    Buffers of megabytes pass from thread to thread here.  With glibc's default, an arena per thread, each keeps what
    it freed for itself: compactions then grow a process to twice its size.  Other C libraries have no such setting.
    """
    _set("MALLOC_ARENA_MAX", _M_ARENA_MAX, 1)


def reuse_large_buffers() -> None:
    """Let freed buffers of megabytes serve again, unless ``MALLOC_MMAP_THRESHOLD_`` says otherwise.

    glibc gets large buffers from the system and gives them back, until its threshold has grown.  Fresh pages cost more
    time than a merge spends on the bytes in them.  So buffers come from the heap, whose end goes back once 32 MiB of it
    are free.
    """
    _set("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, _KEPT_BYTES)
    _set("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, _KEPT_BYTES)


def _set(variable: str, parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if variable not in os.environ and mallopt is not None:
        mallopt(parameter, value)
