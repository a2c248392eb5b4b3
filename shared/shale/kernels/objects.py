"""Kernels: columns to Python's own objects, for little more than what Python itself takes to make them.

They run with the interpreter lock held, and call functions of Python's C interface that are the same in every version.
An object is the int64 of its address, 0: there was no memory for it.  The plain twin is ``shale.engine.row_objects``.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shale.kernels.jit import kernel, part
from shale.kernels.memory import load_i64

_I64 = ir.IntType(64)


def _call(builder: Any, name: str, args: Any) -> Any:
    signature = ir.FunctionType(_I64, [_I64] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


def _of_one(name: str) -> Any:
    def function(_: Any, argument: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return _call(builder, name, args)

        return types.int64(types.int64), build

    return intrinsic(function)


def _of_two(name: str) -> Any:
    def function(_: Any, first: Any, second: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return _call(builder, name, args)

        return types.int64(types.int64, types.int64), build

    return intrinsic(function)


def _of_three(name: str) -> Any:
    """Its result, an int that says whether the place is there, is not asked for."""

    def function(_: Any, first: Any, second: Any, third: Any) -> Any:
        def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
            _call(builder, name, args)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), build

    return intrinsic(function)


@intrinsic
def _forget_error(_: Any) -> Any:
    """No exception is under way any more: whoever called says what went wrong."""

    def build(context: Any, builder: Any, __: Any, ___: Any) -> Any:
        _call(builder, "PyErr_Clear", [])
        return context.get_dummy_value()

    return types.void(), build


_new_bytes = _of_two("PyBytes_FromStringAndSize")
"""From an address and a size."""
_new_tuple = _of_one("PyTuple_New")
"""With so many places, to be filled before anybody sees it."""
_drop = _of_one("Py_DecRef")
_untrack = _of_one("PyObject_GC_UnTrack")
"""What only refers to bytes is part of no cycle: the collector need not look at it, as it would find out itself."""
_fill = _of_three("PyTuple_SetItem")
"""A tuple, a place and an object, which belongs to the tuple then."""
_put = _of_three("PyList_SetItem")
"""The same with a list, whose object at that place goes."""


@part
def _string(data: int, offsets: int, number: int) -> int:
    start = load_i64(offsets + 8 * number)
    return _new_bytes(data + start, load_i64(offsets + 8 * number + 8) - start)


@kernel("int64(int64, int64, int64, int64)", nogil=False)
def put_strings(into: int, count: int, data: int, offsets: int) -> int:
    """Put the strings between offsets into a list.

    Args:
        into: the list, with ``count`` places.
        count: how many.
        data: address of the bytes.
        offsets: address of i64 (count + 1).

    Returns:
        how many were put: fewer if memory ran out.
    """
    for number in range(count):
        string = _string(data, offsets, number)
        if string == 0:
            _forget_error()
            return number
        _put(into, number, string)
    return count


@kernel("int64(int64, int64, int64, int64, int64, int64)", nogil=False)
def put_pairs(into: int, count: int, key_bytes: int, key_offsets: int, val_bytes: int, val_offsets: int) -> int:
    """Put keys with their values into a list, as tuples; arguments and result as for ``put_strings``."""
    for number in range(count):
        key = _string(key_bytes, key_offsets, number)
        value = _string(val_bytes, val_offsets, number) if key != 0 else 0
        pair = _new_tuple(2) if value != 0 else 0
        if pair == 0:
            if key != 0:
                _drop(key)
            if value != 0:
                _drop(value)
            _forget_error()
            return number
        _fill(pair, 0, key)
        _fill(pair, 1, value)
        _untrack(pair)
        _put(into, number, pair)
    return count
