"""Loads, stores and copies at addresses, for kernels: what C would write as pointers.

An address is an int64.  Nothing here checks bounds: a kernel checks every length before it uses it, and
its caller keeps the buffers alive.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shale.kernels.source.jit import inlined

LINE_BYTES = 64
"""Bytes of a cache line."""

_I8, _I64 = ir.IntType(8), ir.IntType(64)
_LOOSE = ir.VectorType(_I8, 16)


def _at(builder: Any, address: Any, type_: Any) -> Any:
    return builder.inttoptr(address, type_.as_pointer())


def _loader(bits: int, *, big: bool, result: Any) -> Any:
    def load(_: Any, address: Any) -> Any:
        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            value = builder.load(_at(builder, args[0], ir.IntType(bits)), align=1)
            if big:
                value = builder.bswap(value)
            return value if bits == 64 else builder.zext(value, _I64)

        return result(types.int64), build

    return intrinsic(load)


def _storer(bits: int, *, big: bool, argument: Any) -> Any:
    def store(_: Any, address: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
            word = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
            if big:
                word = builder.bswap(word)
            builder.store(word, _at(builder, args[0], ir.IntType(bits)), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, argument), build

    return intrinsic(store)


load_u8 = _loader(8, big=False, result=types.int64)
"""One byte."""
load_u16 = _loader(16, big=False, result=types.int64)
"""Two bytes, little-endian."""
load_u32 = _loader(32, big=False, result=types.int64)
"""Four bytes, little-endian."""
load_u16be = _loader(16, big=True, result=types.int64)
"""Two bytes, big-endian."""
load_u32be = _loader(32, big=True, result=types.int64)
"""Four bytes, big-endian."""
load_u64be = _loader(64, big=True, result=types.uint64)
"""Eight bytes, big-endian, as uint64."""
load_u64 = _loader(64, big=False, result=types.uint64)
"""A native uint64."""
load_i64 = _loader(64, big=False, result=types.int64)
"""A native int64."""
store_u8 = _storer(8, big=False, argument=types.int64)
"""The low byte of the value."""
store_u16 = _storer(16, big=False, argument=types.int64)
"""The low 16 bits, little-endian."""
store_u32 = _storer(32, big=False, argument=types.int64)
"""The low 32 bits, little-endian."""
store_u16be = _storer(16, big=True, argument=types.int64)
"""The low 16 bits, big-endian."""
store_u32be = _storer(32, big=True, argument=types.int64)
"""The low 32 bits, big-endian."""
store_u64be = _storer(64, big=True, argument=types.uint64)
"""A uint64, big-endian."""
store_u64 = _storer(64, big=False, argument=types.uint64)
"""A native uint64."""
store_i64 = _storer(64, big=False, argument=types.int64)
"""A native int64."""


@intrinsic
def copy(_: Any, target: Any, source: Any, size: Any) -> Any:
    """``memcpy``: the ranges do not overlap."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        cgutils.raw_memcpy(builder, _at(builder, args[0], _I8), _at(builder, args[1], _I8), args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic
def copy_loose(_: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy in steps of 16 bytes: reads and writes up to 15 bytes past the end, which both buffers must have."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        with cgutils.for_range_slice(builder, _I64(0), args[2], _I64(16), intp=_I64) as (offset, _):
            piece = builder.load(_at(builder, builder.add(args[1], offset), _LOOSE), align=1)
            builder.store(piece, _at(builder, builder.add(args[0], offset), _LOOSE), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic
def prefetch(_: Any, address: Any) -> Any:
    """Prefetch the cache line of an address without waiting; any address is allowed."""

    def build(context: Any, builder: Any, __: Any, args: Any) -> Any:
        pointer, flag = _I8.as_pointer(), ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        touch = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        builder.call(touch, [_at(builder, args[0], _I8), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), build


@intrinsic
def leading_zeros(_: Any, value: Any) -> Any:
    """Zero bits above the highest one bit of a uint64; 64 for 0."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), build


@inlined
def word(words: int, number: int) -> int:
    """Return one of the int64 at an address.

    Kernels pass addresses to their helpers, not arrays: counting references to an array at each call costs more than
    most helpers.
    """
    return load_i64(words + 8 * number)


@inlined
def set_word(words: int, number: int, value: int) -> None:
    """Change one of the int64 at an address."""
    store_i64(words + 8 * number, value)


@inlined
def add_word(words: int, number: int, more: int) -> None:
    """Add to one of the int64 at an address."""
    store_i64(words + 8 * number, load_i64(words + 8 * number) + more)
