"""Keeps the C allocator from hoarding memory per thread."""

import ctypes
import os

_M_ARENA_MAX = -8


def share_one_arena() -> None:
    """Let all threads allocate from one heap, unless ``MALLOC_ARENA_MAX`` says otherwise.

    Buffers of megabytes pass from thread to thread here.  With glibc's default, an arena per thread, each keeps what
    it freed for itself: compactions then grow a process to twice its size.  Other C libraries have no such setting.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
