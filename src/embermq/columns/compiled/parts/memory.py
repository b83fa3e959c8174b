"""Loads and stores at a byte position, for use inside kernels: big-endian but for `word_at`, unaligned, unchecked.

The caller has compared the position with the length of the array before. All numbers are int64 on this side:
numba turns int64 + uint64 into float64, and checks signed array indexes for negative ones.
"""

import sys
from typing import Any

from llvmlite import ir

from embermq.columns.compiled.parts.compiling import cgutils, intrinsic, types

_I64 = ir.IntType(64)


def as_source(data: Any) -> Any:
    """The type of an argument that is an array or, where bytes lie outside of all arrays, an address."""
    return types.int64 if isinstance(data, types.Integer) else data


def address_of(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """Pointer to element `at` of an array value. An integer in place of an array is an address (objects.py)."""
    if isinstance(array_type, types.Integer):
        return builder.inttoptr(builder.add(array, at), ir.IntType(8).as_pointer())
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at])


def _swapped(builder: Any, value: Any) -> Any:
    return builder.bswap(value) if sys.byteorder == "little" and value.type.width > 8 else value


def _load(bits: int, signed: bool, as_it_lies: bool = False) -> Any:
    def typed(typing_context: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = address_of(context, builder, signature.args[0], *args)
            pointer = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            if not as_it_lies:
                value = _swapped(builder, value)
            if bits == 64:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(as_source(data), types.int64), generate

    return intrinsic(typed)


def _store(bits: int) -> Any:
    def typed(typing_context: Any, data: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = address_of(context, builder, signature.args[0], args[0], args[1])
            pointer = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            value = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            builder.store(_swapped(builder, value), pointer, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), generate

    return intrinsic(typed)


u8_at: Any = _load(8, signed=False)
i8_at: Any = _load(8, signed=True)
i16_at: Any = _load(16, signed=True)
i32_at: Any = _load(32, signed=True)
i64_at: Any = _load(64, signed=True)
word_at: Any = _load(64, signed=True, as_it_lies=True)  # In the machine's own order of bytes.
put_i8: Any = _store(8)
put_i16: Any = _store(16)
put_i32: Any = _store(32)
put_i64: Any = _store(64)


@intrinsic
def set_cell(typing_context: Any, rows: Any, row: Any, column: Any, value: Any) -> Any:
    """rows[row, column] = value for int64 rows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        at = builder.add(builder.mul(args[1], width), args[2])
        builder.store(args[3], builder.gep(array.data, [at]))
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int64, types.int64), generate


@intrinsic
def cell(typing_context: Any, rows: Any, row: Any, column: Any) -> Any:
    """rows[row, column] of int64 rows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        at = builder.add(builder.mul(args[1], width), args[2])
        return builder.load(builder.gep(array.data, [at]))

    return types.int64(rows, types.int64, types.int64), generate


@intrinsic
def copy_bytes(typing_context: Any, target: Any, to: Any, source: Any, start: Any, length: Any) -> Any:
    """target[to:to + length] = source[start:start + length]; the arrays must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = address_of(context, builder, signature.args[0], args[0], args[1])
        out_of = address_of(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, into, out_of, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, as_source(source), types.int64, types.int64), generate


@intrinsic
def stores_before(typing_context: Any) -> Any:
    """What was stored before this line is stored before what comes after it: in the file of a killed process,
    and for other threads."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def prefetch(typing_context: Any, data: Any, at: Any) -> Any:
    """Tells the CPU that data[at] will be written soon. The position may be any: nothing is touched."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        small = ir.IntType(32)
        pointer = address_of(context, builder, signature.args[0], *args)
        function = ir.FunctionType(ir.VoidType(), [pointer.type, small, small, small])
        callee = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(callee, [pointer, small(1), small(3), small(1)])
        return context.get_dummy_value()

    return types.void(data, types.int64), generate
