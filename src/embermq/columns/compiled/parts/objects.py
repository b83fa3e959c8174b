"""Reading Python objects inside a kernel: what a list of messages holds, without a Python call for each.

A kernel gets addresses of objects (`id`). It compares the type of each object with one that it knows, exactly, and
reads the object by CPython's C interface: functions that run no Python code and, for objects of these exact types,
always succeed (but for a text with a lone surrogate). So nothing can change under it: the kernel keeps the GIL.

Two things are not part of that interface: where the type of an object stands, and where the fields of a Message do.
`find_layout` looks for both in objects made for it. Where it does not find them (another Python, no GIL) there is no
layout, and messages are read in Python (plain/messages.py).

Addresses are valid as long as the objects are: within one call, under the GIL, of objects that the caller holds.
"""

import ctypes
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import cgutils, inlined, intrinsic, types
from embermq.model.hosts import Host
from embermq.model.message import NO_PROPERTIES, Message

_I8_POINTER = ir.IntType(8).as_pointer()
_I64, _I32 = ir.IntType(64), ir.IntType(32)
_PAIR = types.UniTuple(types.int64, 2)

WORD_BYTES = 8
_TYPE_AT = 8  # Of an object: behind the count of its references.
# Bytes that lie in objects are read as data[address] of this: all addresses are absolute.
MEMORY = 0

# What a kernel is given: addresses of objects and types, then where the fields of a Message stand in it.
(
    K_MESSAGE,
    K_HOST,
    K_TEXT,
    K_BYTES,
    K_INT,
    K_LIST,
    K_TUPLE,
    K_DICT,
    K_NONE,
    K_TRUE,
    K_ZERO,
    K_NO_PROPERTIES,
    K_FIELDS,
) = range(13)
FIELDS = Message.__struct_fields__


def find_layout() -> NDArray[np.int64] | None:
    """The numbers named above, or None if objects do not lie as they should."""
    is_counted = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not is_counted or ctypes.sizeof(ctypes.c_void_p) != WORD_BYTES:
        return None
    samples: tuple[Any, ...] = ("text", b"bytes", 1 << 40, [], {}, Host("", 0), Message(""), object())
    if any(_words(sample)[_TYPE_AT // WORD_BYTES] != id(type(sample)) for sample in samples):
        return None
    values = tuple(object() for _ in FIELDS)
    words = _words(Message(*values))  # type: ignore[arg-type]
    if any(words.count(id(value)) != 1 for value in values):
        return None
    offsets = [words.index(id(value)) * WORD_BYTES for value in values]
    known = (Message, Host, str, bytes, int, list, tuple, dict, None, True, 0, NO_PROPERTIES)
    assert len(known) == K_FIELDS
    return np.array([*map(id, known), *offsets], np.int64)


def _words(value: object) -> list[int]:
    """The memory of an object: its fixed part, which is all that a Message has."""
    size = type(value).__basicsize__ // WORD_BYTES * WORD_BYTES
    words: list[int] = np.frombuffer(ctypes.string_at(id(value), size), np.uint64).tolist()
    return words


# -- for use inside kernels ------------------------------------------------------------------------------------


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    function = ir.FunctionType(result, [one.type for one in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)


def _object(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I8_POINTER)


def _pair(context: Any, builder: Any, first: Any, second: Any) -> Any:
    return context.make_tuple(builder, _PAIR, [first, second])


@intrinsic
def field_at(typing_context: Any, address: Any, offset: Any) -> Any:
    """The word that stands `offset` bytes behind the beginning of an object."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(builder.add(args[0], args[1]), _I64.as_pointer()))

    return types.int64(types.int64, types.int64), generate


@inlined
def known_at(known: Any, number: int) -> int:
    return known[np.uint64(number)]  # type: ignore[no-any-return]


@inlined
def is_a(value: int, known: Any, kind: int) -> bool:
    """Is an object of exactly this type? No object (0) is of none."""
    return value != 0 and field_at(value, _TYPE_AT) == known_at(known, kind)


@intrinsic
def text_of(typing_context: Any, address: Any) -> Any:
    """Address and length of the UTF-8 of a str; address 0: it has none."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        length = cgutils.alloca_once(builder, _I64)
        pointer = _call(builder, "PyUnicode_AsUTF8AndSize", _I8_POINTER, [_object(builder, args[0]), length])
        start = builder.ptrtoint(pointer, _I64)
        with builder.if_then(builder.icmp_unsigned("==", start, _I64(0)), likely=False):
            _call(builder, "PyErr_Clear", ir.VoidType(), [])
            builder.store(_I64(0), length)
        return _pair(context, builder, start, builder.load(length))

    return _PAIR(types.int64), generate


@intrinsic
def bytes_of(typing_context: Any, address: Any) -> Any:
    """Address and length of what a bytes object holds."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _object(builder, args[0])
        start = builder.ptrtoint(_call(builder, "PyBytes_AsString", _I8_POINTER, [value]), _I64)
        return _pair(context, builder, start, _call(builder, "PyBytes_Size", _I64, [value]))

    return _PAIR(types.int64), generate


@intrinsic
def int_of(typing_context: Any, address: Any) -> Any:
    """The value of an int, and 1; 0 in place of 1: it has more than 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        overflow = cgutils.alloca_once(builder, _I32)
        value = _call(builder, "PyLong_AsLongLongAndOverflow", _I64, [_object(builder, args[0]), overflow])
        fits = builder.icmp_signed("==", builder.load(overflow), _I32(0))
        return _pair(context, builder, value, builder.zext(fits, _I64))

    return _PAIR(types.int64), generate


def _item_of(function: str) -> Any:
    def typed(typing_context: Any, address: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = _call(builder, function, _I8_POINTER, [_object(builder, args[0]), args[1]])
            found = builder.ptrtoint(item, _I64)
            with builder.if_then(builder.icmp_unsigned("==", found, _I64(0)), likely=False):
                _call(builder, "PyErr_Clear", ir.VoidType(), [])
            return found

        return types.int64(types.int64, types.int64), generate

    return intrinsic(typed)


def _size_of(function: str) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _call(builder, function, _I64, [_object(builder, args[0])])

        return types.int64(types.int64), generate

    return intrinsic(typed)


list_item: Any = _item_of("PyList_GetItem")  # 0: the list is shorter.
list_size: Any = _size_of("PyList_Size")
tuple_item: Any = _item_of("PyTuple_GetItem")
tuple_size: Any = _size_of("PyTuple_Size")
dict_size: Any = _size_of("PyDict_Size")

_STEP = types.UniTuple(types.int64, 3)


@intrinsic
def dict_step(typing_context: Any, address: Any, position: Any) -> Any:
    """The next position, key and value of a dict, beginning with position 0; key 0: there is no other."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, key, value = (cgutils.alloca_once(builder, kind) for kind in (_I64, _I8_POINTER, _I8_POINTER))
        builder.store(args[1], place)
        found = _call(builder, "PyDict_Next", _I32, [_object(builder, args[0]), place, key, value])
        is_there = builder.icmp_signed("!=", found, _I32(0))
        parts = [builder.select(is_there, builder.ptrtoint(builder.load(part), _I64), _I64(0)) for part in (key, value)]
        return context.make_tuple(builder, _STEP, [builder.load(place), *parts])

    return _STEP(types.int64, types.int64), generate
