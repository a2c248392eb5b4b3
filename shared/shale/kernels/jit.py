"""The decorator of kernels: compiled once, for one signature, and kept on disk.

Numba's cache asks only whether the file of a function has changed, not those of the kernels it calls, whose code is
compiled into it.  Ours asks whether any kernel file has, so that an update in place never runs yesterday's code.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache


def _digest_of_kernels() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_DIGEST = _digest_of_kernels()


def with_our_rules(locator: Any) -> Any:
    """A place for code on disk, with two rules of our own: for its freshness, and for places that are read-only."""

    class Place(locator):  # type: ignore[misc]  # numba has no types
        def get_source_stamp(self) -> str:
            return _DIGEST

        def ensure_cache_path(self) -> None:
            """Numba refuses a place that it cannot write to; one that was filled before, as in our image, will do."""
            if not any(Path(self.get_cache_path()).glob("*.nbi")):
                super().ensure_cache_path()

    return Place


class _KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
    """Code says itself of which kernels it is: an index may be newer than the file that it names."""

    _locator_classes = tuple(map(with_our_rules, CompileResultCacheImpl._locator_classes))

    def reduce(self, cres: Any) -> Any:
        return _DIGEST, super().reduce(cres)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        digest, code = payload
        return super().rebuild(target_context, code) if digest == _DIGEST else None


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load code, or nothing if what is on disk cannot be read; it then gives way to what will be saved."""
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            return None
        except Exception:  # noqa: BLE001 - a file that was cut or damaged raises anything when it is unpickled
            try:
                self.flush()
            except OSError:
                self.disable()  # or saving would read it again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code if that is possible: a full disk or a read-only one must not stop a kernel."""
        with suppress(OSError):
            super().save_overload(sig, data)


helper: Callable[[Callable[..., Any]], Any] = njit(nogil=True)
"""The decorator of functions that only kernels call: compiled into each of them."""

part: Callable[[Callable[..., Any]], Any] = njit(nogil=True, forceinline=True)
"""The same for functions of the innermost loops, which must not cost a call."""


def kernel(signature: Any, *, nogil: bool = True, direct: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, or load it from the cache.

    Where nothing can be written (no cache directory, read-only code, no home) it is compiled anew in each process.

    Args:
        signature: numba's.
        nogil: release the interpreter lock while it runs: not worth it for a call of a microsecond.
        direct: give the compiled function itself, without numba's choice among signatures, which takes longer than
            what the quickest kernels do.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=nogil)(function)
        if config.DISABLE_JIT:
            return dispatcher
        with suppress(RuntimeError):  # no place for a cache
            dispatcher._cache = _KernelCache(function)
        entry_point = dispatcher.compile(signature)
        dispatcher.disable_compile()
        return entry_point if direct else dispatcher

    return decorate
