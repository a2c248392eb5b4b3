"""Memory between two pages without any right: a kernel that reads or writes outside of a buffer ends the process.

``guarded_numpy`` gives every new array its own pages, so that the buffers that code under test makes are guarded, too.
``GuardedBytes`` makes bytes objects whose last byte, or whose header, lies at the edge.  Both need the C compiler that
the kernels need.
"""

import contextlib
import ctypes
import gc
import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_SOURCE = Path(__file__).with_name("guarded.c")
_CACHE = Path(__file__).parents[1] / ".shale"
_SET_HANDLER = 304
"""Index of ``PyDataMem_SetHandler`` in NumPy's table of functions, since NumPy 1.22."""
_HEADER = bytes.__basicsize__ - 1
_MANY_REFERENCES = (1 << 29).to_bytes(4, "little")


class Side(Enum):
    """Where the guard page is next to a buffer."""

    AFTER = 0
    BEFORE = 1


@cache
def _library() -> Any:
    """Compile and load the allocator; the result is kept for other processes."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    path = _CACHE / f"guarded-{digest}.so"
    if not path.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as folder:
            made = Path(folder) / "guarded.so"
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, _SOURCE], check=True)
            made.replace(path)
    library = ctypes.PyDLL(str(path))
    library.guarded_malloc.restype = ctypes.c_void_p
    library.guarded_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.guarded_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return library


def _allocate(size: int, side: Side) -> int:
    ctypes.c_int.in_dll(_library(), "guard_before").value = side.value
    address = _library().guarded_malloc(None, size)
    if not address:
        raise MemoryError(f"no guarded memory of {size} bytes")
    return int(address)


class GuardedPages:
    """Plain memory, for kernels that take an address and a size.  It lives as long as this object."""

    def __init__(self, side: Side = Side.AFTER) -> None:
        self._side = side
        self._addresses: list[int] = []

    def put(self, data: bytes) -> int:
        """Copy data to pages of its own and return its address."""
        address = _allocate(len(data), self._side)
        self._addresses.append(address)
        ctypes.memmove(address, data, len(data))
        return address

    def __del__(self) -> None:
        for address in self._addresses:
            _library().guarded_free(None, address, 0)


_RETIRED_MAX = 2000
_retired: list[int] = []


class GuardedBytes:
    """Bytes objects in guarded memory.  They live until the end of the block, and some blocks longer.

    What a cycle of other objects keeps is collected before the memory is unmapped.
    """

    def __init__(self, side: Side = Side.AFTER) -> None:
        self._side = side
        self._addresses: list[int] = []

    def __enter__(self) -> "GuardedBytes":
        if len(_retired) > _RETIRED_MAX:
            gc.collect()
            for address in _retired:
                _library().guarded_free(None, address, 0)
            _retired.clear()
        return self

    def __exit__(self, *_: object) -> None:
        _retired.extend(self._addresses)

    def copy(self, data: bytes) -> bytes:
        """Return an equal object.  It has no zero after its last byte, which only C functions for text read."""
        size = _HEADER + len(data)
        address = _allocate(size, self._side)
        self._addresses.append(address)
        ctypes.memmove(address, id(data), size)
        ctypes.memmove(address, _MANY_REFERENCES, len(_MANY_REFERENCES))  # so that nothing frees it
        return ctypes.cast(address, ctypes.py_object).value


@cache
def _handler() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(ctypes.c_char.in_dll(_library(), "guarded_handler")), b"mem_handler", None)


@cache
def _set_handler() -> Any:
    from numpy._core import _multiarray_umath

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])


@contextlib.contextmanager
def guarded_numpy(side: Side = Side.AFTER) -> Iterator[None]:
    """Put every array that is made within the block between guard pages."""
    ctypes.c_int.in_dll(_library(), "guard_before").value = side.value
    before = _set_handler()(_handler())
    try:
        yield
    finally:
        _set_handler()(before)


def guarded_array(data: bytes) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return a copy of bytes as an array; within ``guarded_numpy`` it is guarded."""
    array = np.empty(len(data), np.uint8)
    array[:] = np.frombuffer(data, np.uint8)
    return array
