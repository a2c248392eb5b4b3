"""Keeps the C allocator from hoarding memory."""

import ctypes
import os

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def share_one_arena() -> None:
    """Let all threads allocate from one heap, unless ``MALLOC_ARENA_MAX`` says otherwise.

    Buffers of megabytes pass from thread to thread here.  With glibc's default, an arena per thread, each keeps what
    it freed for itself: compactions then grow a process to twice its size.  Other C libraries have no such setting.
    """
    _set("MALLOC_ARENA_MAX", _M_ARENA_MAX, 1)


def return_large_buffers() -> None:
    """Give buffers of a megabyte back when they are freed, unless ``MALLOC_MMAP_THRESHOLD_`` says otherwise.

    glibc would raise that size with every large buffer that it sees freed, up to 32 MiB, and keep what is smaller.
    """
    _set("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, _LARGE_BYTES)


def _set(variable: str, parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if variable not in os.environ and mallopt is not None:
        mallopt(parameter, value)
