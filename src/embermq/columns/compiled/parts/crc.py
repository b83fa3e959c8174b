"""CRC-32 (as zlib computes it) inside kernels, in two ways chosen once by what the CPU can do.

`crc32_folded` multiplies without carry 64 bytes at a time (PCLMULQDQ, through its LLVM intrinsic); the method
and its constants are in Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
Instruction" (Intel, 2009). `crc32_sliced` looks up 16 tables at a time and runs anywhere.
The plain twin of both is zlib.crc32. Calls from a kernel must have checked the range.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core.registry import cpu_target

from embermq.columns.compiled.parts.compiling import READ_BYTES, cgutils, inlined, intrinsic, kernel, types
from embermq.columns.compiled.parts.memory import address_of, u8_at
from embermq.columns.rows import as_bytes_array

_POLYNOMIAL = 0xEDB88320


def _make_tables() -> Any:
    """tables[k][b]: what byte b does to the checksum when k bytes follow it."""
    tables = np.zeros((16, 256), dtype=np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for k in range(1, 16):
        tables[k] = tables[k - 1] >> 8 ^ tables[0][tables[k - 1] & 255]
    return tables.astype(np.uint32).reshape(-1)


_TABLES = _make_tables()


@inlined
def _look_up(table: int, byte: int) -> int:
    return np.int64(_TABLES[np.uint64(256 * table + (byte & 255))])  # type: ignore[return-value]


@inlined
def _add_bytes(data: Any, at: int, end: int, state: int) -> int:
    """Bytes at..end into `state`, four at a time where possible."""
    while end - at >= 4:
        state = (
            _look_up(3, state ^ u8_at(data, at))
            ^ _look_up(2, state >> 8 ^ u8_at(data, at + 1))
            ^ _look_up(1, state >> 16 ^ u8_at(data, at + 2))
            ^ _look_up(0, state >> 24 ^ u8_at(data, at + 3))
        )
        at += 4
    while at < end:
        state = state >> 8 ^ _look_up(0, state ^ u8_at(data, at))
        at += 1
    return state


@inlined
def crc32_sliced(data: Any, at: int, length: int) -> int:
    """CRC-32 of data[at:at + length]."""
    end = at + length
    state = 0xFFFF_FFFF
    while end - at >= 16:
        following = 0
        for k in range(4, 16):
            following ^= _look_up(15 - k, u8_at(data, at + k))
        state = (
            _look_up(15, state ^ u8_at(data, at))
            ^ _look_up(14, state >> 8 ^ u8_at(data, at + 1))
            ^ _look_up(13, state >> 16 ^ u8_at(data, at + 2))
            ^ _look_up(12, state >> 24 ^ u8_at(data, at + 3))
            ^ following
        )
        at += 16
    return _add_bytes(data, at, end, state) ^ 0xFFFF_FFFF


_LANES = ir.VectorType(ir.IntType(64), 2)
_BY_64 = (0x154442BD4, 0x1C6E41596)  # x^(512+32), x^(512-32) mod P, reflected: over 64 bytes
_BY_16 = (0x1751997D0, 0x0CCAA009E)  # over 16 bytes
_BY_8 = (0x163CD6124, 0)
_BARRETT = (0x1DB710641, 0x1F7011641)  # P and its inverse


def _lanes(low: int, high: int) -> Any:
    return ir.Constant(_LANES, [low, high])


class _Folder:
    """Writes the folding steps as LLVM instructions; a "register" below is 16 bytes as two 64-bit lanes."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        function = ir.FunctionType(_LANES, [_LANES, _LANES, ir.IntType(8)])
        self.multiply_function = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.pclmulqdq")

    def load(self, pointer: Any, offset: Any) -> Any:
        place = self.builder.gep(pointer, [offset])
        return self.builder.load(self.builder.bitcast(place, _LANES.as_pointer()), align=1)

    def multiply(self, a: Any, b: Any, halves: int) -> Any:
        return self.builder.call(self.multiply_function, [a, b, ir.Constant(ir.IntType(8), halves)])

    def fold(self, register: Any, constants: Any, onto: Any) -> Any:
        low = self.multiply(register, constants, 0x00)
        high = self.multiply(register, constants, 0x11)
        return self.builder.xor(self.builder.xor(low, high), onto)

    def shifted_right(self, register: Any, count: int) -> Any:
        whole = self.builder.bitcast(register, ir.IntType(128))
        return self.builder.bitcast(self.builder.lshr(whole, ir.Constant(ir.IntType(128), 8 * count)), _LANES)

    def reduce(self, register: Any) -> Any:
        """16 bytes of remainder to the 4 of the checksum."""
        b, mask = self.builder, _lanes(0xFFFF_FFFF, 0xFFFF_FFFF)
        carried = self.multiply(register, _lanes(*_BY_16), 0x10)
        register = b.xor(self.shifted_right(register, 8), carried)
        carried = self.multiply(b.and_(register, mask), _lanes(*_BY_8), 0x00)
        register = b.xor(self.shifted_right(register, 4), carried)
        quotient = b.and_(self.multiply(b.and_(register, mask), _lanes(*_BARRETT), 0x10), mask)
        register = b.xor(register, self.multiply(quotient, _lanes(*_BARRETT), 0x00))
        low = b.extract_element(register, ir.Constant(ir.IntType(32), 0))
        return b.lshr(low, ir.Constant(ir.IntType(64), 32))


@intrinsic
def _fold(typing_context: Any, data: Any, at: Any, blocks: Any) -> Any:
    """State after data[at:at + 16 * blocks], from a fresh start; blocks >= 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        folder = _Folder(builder)
        number = ir.IntType(64)
        pointer = address_of(context, builder, signature.args[0], args[0], args[1])
        blocks = args[2]
        register = cgutils.alloca_once(builder, _LANES)
        done = cgutils.alloca_once(builder, number)
        fresh = _lanes(0xFFFF_FFFF, 0)
        with builder.if_else(builder.icmp_signed(">=", blocks, number(4))) as (many, few):
            with many:
                states = [cgutils.alloca_once(builder, _LANES) for _ in range(4)]
                for k, state in enumerate(states):
                    first = folder.load(pointer, number(16 * k))
                    builder.store(builder.xor(first, fresh) if k == 0 else first, state)
                rounds = builder.sub(builder.lshr(blocks, number(2)), number(1))
                with cgutils.for_range(builder, rounds) as loop:
                    here = builder.add(builder.mul(loop.index, number(64)), number(64))
                    for k, state in enumerate(states):
                        new = folder.load(pointer, builder.add(here, number(16 * k)))
                        builder.store(folder.fold(builder.load(state), _lanes(*_BY_64), new), state)
                merged = builder.load(states[0])
                for state in states[1:]:
                    merged = folder.fold(merged, _lanes(*_BY_16), builder.load(state))
                builder.store(merged, register)
                builder.store(builder.and_(blocks, number(-4)), done)
            with few:
                builder.store(builder.xor(folder.load(pointer, number(0)), fresh), register)
                builder.store(number(1), done)
        start = builder.load(done)
        with cgutils.for_range(builder, builder.sub(blocks, start)) as loop:
            here = builder.mul(builder.add(loop.index, start), number(16))
            folded = folder.fold(builder.load(register), _lanes(*_BY_16), folder.load(pointer, here))
            builder.store(folded, register)
        return folder.reduce(builder.load(register))

    return types.int64(data, types.int64, types.int64), generate


@inlined
def crc32_folded(data: Any, at: int, length: int) -> int:
    """CRC-32 of data[at:at + length]."""
    state = 0xFFFF_FFFF
    blocks = length >> 4
    if blocks > 0:
        state = _fold(data, at, blocks)
    return _add_bytes(data, at + (blocks << 4), at + length, state) ^ 0xFFFF_FFFF


def _can_fold() -> bool:
    """Asks the code generator, not the CPU: numba may be configured to compile for another one."""
    triple, _name, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+pclmul" in features


CAN_FOLD = _can_fold()
crc32_at: Callable[[Any, int, int], int] = crc32_folded if CAN_FOLD else crc32_sliced


@kernel(f"int64({READ_BYTES}, int64, int64)")
def _crc32_at_once(data: Any, at: int, length: int) -> int:
    return crc32_at(data, at, length)


def crc32(data: Any) -> int:
    """CRC-32 of a buffer. Twin: zlib.crc32. Folded: 3.5-4 times as fast (10-12 GB/s on 16 MiB)."""
    raw = as_bytes_array(data)
    return _crc32_at_once(raw, 0, len(raw))
