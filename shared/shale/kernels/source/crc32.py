"""CRC-32 (docs/reference/format.md 2.2) for kernels: carry-less multiplication where the CPU has it, tables elsewhere.

Folding 64 bytes at a time by carry-less multiplication is described in V. Gopal et al., "Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009); the constants are x^n mod P for the reflected
polynomial 0xEDB88320.
"""

from typing import Any

import numpy as np
from numba import types

from shale.kernels.source.jit import helper
from shale.kernels.source.memory import load_u8, load_u64

POLYNOMIAL = 0xEDB88320


def _tables() -> Any:
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for step in range(1, 8):
        before = tables[step - 1]
        tables[step] = before >> np.uint64(8) ^ tables[0][before & np.uint64(0xFF)]
    return tables.reshape(-1)


_TABLES = _tables()


@helper
def update_by_tables(state: Any, address: int, size: int) -> Any:
    """Advance the inverted checksum over ``size`` bytes, 8 at a time."""
    low = np.uint64(0xFF)
    at = address
    end = address + size
    while end - at >= 8:
        word = load_u64(at) ^ state
        state = np.uint64(0)
        for step in range(8):
            state ^= _TABLES[np.int64(word & low) + (7 - step) * 256]
            word >>= np.uint64(8)
        at += 8
    while at < end:
        state = state >> np.uint64(8) ^ _TABLES[np.int64((state ^ np.uint64(load_u8(at))) & low)]
        at += 1
    return state


@helper
def crc32_by_tables(address: int, size: int) -> Any:
    """The checksum of ``size`` bytes, on any CPU."""
    return np.int64(update_by_tables(np.uint64(0xFFFFFFFF), address, size) ^ np.uint64(0xFFFFFFFF))


def _cpu_multiplies() -> bool:
    """Whether the code that numba makes may use PCLMULQDQ."""
    from numba.core.registry import cpu_target

    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+pclmul" in features.split(",")


CPU_MULTIPLIES = _cpu_multiplies()

if CPU_MULTIPLIES:
    from llvmlite import ir
    from numba.core import cgutils
    from numba.extending import intrinsic

    _I64 = ir.IntType(64)
    _WORDS = ir.VectorType(_I64, 2)
    _LANES = 4

    def _pair(low: int, high: int) -> Any:
        return ir.Constant(_WORDS, [_I64(low), _I64(high)])

    _FOLD_64 = _pair(0x0154442BD4, 0x01C6E41596)
    _FOLD_16 = _pair(0x01751997D0, 0x00CCAA009E)
    _FOLD_8 = _pair(0x0163CD6124, 0)
    _BARRETT = _pair(0x01DB710641, 0x01F7011641)
    _LOW_32 = _pair(0xFFFFFFFF, 0xFFFFFFFF)

    class _Folding:
        """Emits the steps of the paper into one function."""

        def __init__(self, builder: Any) -> None:
            self._b = builder
            name, signature = "llvm.x86.pclmulqdq", ir.FunctionType(_WORDS, [_WORDS, _WORDS, ir.IntType(8)])
            self._multiply = cgutils.get_or_insert_function(builder.module, signature, name)

        def multiply(self, left: Any, right: Any, halves: int) -> Any:
            return self._b.call(self._multiply, [left, right, ir.IntType(8)(halves)])

        def load(self, address: Any, offset: int = 0) -> Any:
            place = self._b.add(address, _I64(offset))
            return self._b.load(self._b.inttoptr(place, _WORDS.as_pointer()), align=1)

        def fold(self, value: Any, constants: Any, more: Any) -> Any:
            low, high = self.multiply(value, constants, 0x00), self.multiply(value, constants, 0x11)
            return self._b.xor(self._b.xor(low, high), more)

        def shift_down(self, value: Any, bits: int) -> Any:
            number = self._b.lshr(self._b.bitcast(value, ir.IntType(128)), ir.IntType(128)(bits))
            return self._b.bitcast(number, _WORDS)

        def reduce(self, value: Any) -> Any:
            """128 bits to the 32 of the checksum."""
            b = self._b
            value = b.xor(self.shift_down(value, 64), self.multiply(value, _FOLD_16, 0x10))
            upper = self.shift_down(value, 32)
            value = b.xor(upper, self.multiply(b.and_(value, _LOW_32), _FOLD_8, 0x00))
            quotient = self.multiply(b.and_(value, _LOW_32), _BARRETT, 0x10)
            value = b.xor(value, self.multiply(b.and_(quotient, _LOW_32), _BARRETT, 0x00))
            return b.lshr(b.extract_element(value, ir.IntType(32)(0)), _I64(32))

    @intrinsic
    def _fold_blocks(_: Any, state: Any, address: Any, size: Any) -> Any:
        """Advance the inverted checksum over ``size`` bytes: at least 64 and a multiple of 16."""

        def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
            state, address, size = args
            steps = _Folding(builder)
            lanes = [cgutils.alloca_once_value(builder, steps.load(address, 16 * lane)) for lane in range(_LANES)]
            first = builder.insert_element(_pair(0, 0), state, ir.IntType(32)(0))
            builder.store(builder.xor(builder.load(lanes[0]), first), lanes[0])
            with cgutils.for_range(builder, builder.lshr(size, _I64(6)), _I64(1), _I64) as rounds:
                place = builder.add(address, builder.shl(rounds.index, _I64(6)))
                for number, lane in enumerate(lanes):
                    more = steps.load(place, 16 * number)
                    builder.store(steps.fold(builder.load(lane), _FOLD_64, more), lane)
            for lane in lanes[1:]:
                builder.store(steps.fold(builder.load(lanes[0]), _FOLD_16, builder.load(lane)), lanes[0])
            tail = builder.and_(size, _I64(-64))
            with cgutils.for_range(builder, builder.lshr(size, _I64(4)), builder.lshr(tail, _I64(4)), _I64) as rounds:
                place = builder.add(address, builder.shl(rounds.index, _I64(4)))
                builder.store(steps.fold(builder.load(lanes[0]), _FOLD_16, steps.load(place)), lanes[0])
            return steps.reduce(builder.load(lanes[0]))

        return types.uint64(types.uint64, types.int64, types.int64), build

    @helper
    def crc32(address: int, size: int) -> Any:
        """The checksum of ``size`` bytes."""
        state = np.uint64(0xFFFFFFFF)
        folded = size & ~15
        if folded >= 64:
            state = _fold_blocks(state, address, folded)
        else:
            folded = 0
        state = update_by_tables(state, address + folded, size - folded)
        return np.int64(state ^ np.uint64(0xFFFFFFFF))

else:
    crc32 = crc32_by_tables
