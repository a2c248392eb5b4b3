"""Kernels or plain Python: a process that has not loaded its kernels does small work without them.

Loading takes about a second, compiling many; a first ``get`` or a flush of ten rows must not wait for that.
"""

import sys

PLAIN_BYTES_MAX = 256 << 10
"""Work up to this size does not load kernels.  Larger pieces of work go to a thread, which may wait for them."""
_LOADED = "shale.kernels.loaded"


def are_loaded() -> bool:
    """Whether the kernels are there; not yet while another thread is still loading them, which small work must not
    wait for."""
    return hasattr(sys.modules.get(_LOADED), "KERNELS")


def are_loading() -> bool:
    """Whether a thread is at it: minutes, where they are compiled for the first time."""
    return _LOADED in sys.modules and not are_loaded()


def use_kernels(size_bytes: int) -> bool:
    """Whether work on so many bytes goes through kernels; loads them if it is worth it."""
    if size_bytes <= PLAIN_BYTES_MAX and not are_loaded():
        return False
    return load_kernels()


def wants_loading(size_bytes: int) -> bool:
    """Whether ``use_kernels`` would load them: then call ``load_kernels`` in a thread first."""
    return size_bytes > PLAIN_BYTES_MAX and not are_loaded()


def load_kernels() -> bool:
    """Load kernels now, for instance in a thread while a database opens.  ``False``: there is no JIT compiler."""
    from shale.kernels.loaded import HAS_JIT

    return HAS_JIT
