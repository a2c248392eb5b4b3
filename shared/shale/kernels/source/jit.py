"""The decorators of kernel sources, which are imported only to compile them (``shale.kernels.compiler``).

Kernels do what C would do: they take numbers and addresses, allocate nothing and raise nothing.
"""

import re
from collections.abc import Callable
from typing import Any

from numba import njit

from shale.core.lazy_dataclass import dataclass

_SIGNATURE = re.compile(r"(\w+)\((.*)\)")
RESULTS = frozenset({"void", "i64", "bool", "count", "answer"})
PARAMETERS = frozenset({"i64", "u64", "key", "object"})

helper: Callable[[Callable[..., Any]], Any] = njit(nogil=True, error_model="numpy")
"""The decorator of functions that only kernels call: compiled into each of them."""

inlined: Callable[[Callable[..., Any]], Any] = njit(nogil=True, error_model="numpy", forceinline=True)
"""The decorator of functions in innermost loops, which are inlined because a call costs too much."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function of the compiled module.

    ``result`` is one of ``void``, ``i64``, ``bool``, ``count`` (an i64; below 0 if a Python exception is set), or
    ``answer``: the last parameter of the source is the address of status, address and size, see ``objects``.
    A parameter is an ``i64``, a ``u64``, an ``object`` (an i64, its address), or a ``key``, which is ``bytes`` and two
    parameters of the source: address and size.
    """

    name: str
    function: Callable[..., Any]
    result: str
    parameters: tuple[str, ...]
    holds_lock: bool


KERNELS: list[Kernel] = []
"""Every kernel, in the order of the imports."""


def kernel(signature: str, *, holds_lock: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Declare an entry of the compiled module.

    Args:
        signature: such as ``i64(i64, u64)``; see ``Kernel``.
        holds_lock: keep the interpreter lock: for calls that use Python's objects or take less than a microsecond.
    """
    match = _SIGNATURE.fullmatch(signature)
    assert match is not None, signature
    result, parameters = match[1], tuple(part.strip() for part in match[2].split(","))
    assert result in RESULTS, signature
    assert PARAMETERS.issuperset(parameters), signature

    def declare(function: Callable[..., Any]) -> Any:
        KERNELS.append(Kernel(function.__name__, function, result, parameters, holds_lock))
        return helper(function)

    return declare
