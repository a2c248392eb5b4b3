"""Python's objects for kernels, by functions of Python's stable C interface.

The caller holds the interpreter lock.  An object is the int64 of its address; 0 is null: an exception is set.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shale.kernels.source.jit import inlined

IS_BYTES = -1
"""Status of an answer: the bytes at its address."""
IS_NONE = 0
"""Status of an answer.  Above 0: a number."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _call(builder: Any, name: str, args: Any, result: Any = _I64) -> Any:
    signature = ir.FunctionType(result, [_I64] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


def _of_one(name: str, argument_type: Any = types.int64) -> Any:
    def function(_: Any, argument: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return _call(builder, name, args)

        return types.int64(argument_type), build

    return intrinsic(function)


def _of_two(name: str, result: Any = _I64) -> Any:
    def function(_: Any, first: Any, second: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            returned = _call(builder, name, args, result)
            return returned if result is _I64 else builder.sext(returned, _I64)

        return types.int64(types.int64, types.int64), build

    return intrinsic(function)


def _of_three(name: str) -> Any:
    """Return a function whose result is a C int: 0, or -1 after an exception."""

    def function(_: Any, first: Any, second: Any, third: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            return builder.sext(_call(builder, name, args, _I32), _I64)

        return types.int64(types.int64, types.int64, types.int64), build

    return intrinsic(function)


@intrinsic
def clear_error(_: Any) -> Any:
    """Clear the exception: the caller reports the error."""

    def build(context: Any, builder: Any, __: Any, ___: Any) -> Any:
        _call(builder, "PyErr_Clear", [])
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def untrack(_: Any, item: Any) -> Any:
    """Exempt an object from cycle detection: what only refers to bytes is part of no cycle."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        _call(builder, "PyObject_GC_UnTrack", args)
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def drop(_: Any, item: Any) -> Any:
    """Give up a reference."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        _call(builder, "Py_DecRef", args)
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def hold(_: Any, item: Any) -> Any:
    """Take one more reference, and return the object."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        _call(builder, "Py_IncRef", args, ir.VoidType())
        return args[0]

    return types.int64(types.int64), build


@intrinsic
def pause_collection(_: Any) -> Any:
    """Turn off the search for cycles, which could run other code; return whether it was on."""

    def build(context: Any, builder: Any, __: Any, ___: Any) -> Any:
        return builder.sext(_call(builder, "PyGC_Disable", [], _I32), _I64)

    return types.int64(), build


@intrinsic
def resume_collection(_: Any) -> Any:
    """Turn on the search for cycles."""

    def build(context: Any, builder: Any, __: Any, ___: Any) -> Any:
        return builder.sext(_call(builder, "PyGC_Enable", [], _I32), _I64)

    return types.int64(), build


new_bytes = _of_two("PyBytes_FromStringAndSize")
"""From an address and a size."""
new_tuple = _of_one("PyTuple_New")
"""Makes a tuple of this size, which must be filled before other code sees it."""
fill = _of_three("PyTuple_SetItem")
"""A tuple, a place and an object, which belongs to the tuple then."""
put = _of_three("PyList_SetItem")
"""Sets an element of a list and releases the object that was there."""
append = _of_two("PyList_Append", _I32)
"""Appends to a list, which takes a reference of its own; 0, or -1 after an exception."""
new_of_type = _of_two("PyType_GenericAlloc")
"""An instance of a type, a number of items, all null."""
new_signed = _of_one("PyLong_FromLongLong")
new_unsigned = _of_one("PyLong_FromUnsignedLongLong", types.uint64)
_item = _of_two("PyList_GetItem")
_bytes_data = _of_one("PyBytes_AsString")
_bytes_size = _of_one("PyBytes_Size")


@inlined
def bytes_at(objects: int, number: int) -> Any:
    """Return address and size of the bytes at one place of a list; the size is below 0 after an exception."""
    item = _item(objects, number)
    size = _bytes_size(item) if item != 0 else -1
    return (_bytes_data(item) if size >= 0 else 0), size


@inlined
def put_answer(objects: int, number: int, status: int, address: int, size: int) -> bool:
    """Put bytes or a number to one place of a list; return false after an exception."""
    item = new_bytes(address, size) if status == IS_BYTES else new_signed(status)
    return item != 0 and put(objects, number, item) == 0
