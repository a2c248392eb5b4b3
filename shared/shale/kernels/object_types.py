"""Kernels that take and give Python's objects: keys as they are, values made where they are found.

Numba would take ``bytes`` as an array, which costs as much as a lookup.  Here they are an address and a length while
the call lasts.  Whoever uses this holds the interpreter lock (``kernel(..., nogil=False, direct=True)``).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import NativeValue, box, intrinsic, make_attribute_wrapper, register_model, unbox

_I64 = ir.IntType(64)


class _Key(types.Type):  # type: ignore[misc]  # numba has no types
    """An argument of ``bytes``: ``address`` and ``size``."""

    def __init__(self) -> None:
        super().__init__(name="shale.Key")


class _Objects(types.Type):  # type: ignore[misc]
    """An argument that is a list; every use checks it, and raises what Python would."""

    def __init__(self) -> None:
        super().__init__(name="shale.Objects")


class _Answer(types.Type):  # type: ignore[misc]
    """A result of ``answer``: ``bytes``, ``None``, or a small number."""

    def __init__(self) -> None:
        super().__init__(name="shale.Answer")


class _Count(types.Type):  # type: ignore[misc]
    """A result that is a number, or below 0 the exception that a use of an object left behind."""

    def __init__(self) -> None:
        super().__init__(name="shale.Count")


KEY, OBJECTS, ANSWER, COUNT = _Key(), _Objects(), _Answer(), _Count()

IS_BYTES = -1
"""As the status of an answer: the bytes at its address."""
IS_NONE = 0
"""As the status of an answer."""


@register_model(_Key)
class _KeyModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("address", types.int64), ("size", types.int64)])


@register_model(_Answer)
class _AnswerModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("status", types.int64), ("address", types.int64), ("size", types.int64)])


@register_model(_Objects)
class _ObjectsModel(models.OpaqueModel):  # type: ignore[misc]
    pass


@register_model(_Count)
class _CountModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _I64)


make_attribute_wrapper(_Key, "address", "address")
make_attribute_wrapper(_Key, "size", "size")


def _bytes_of(api: Any, builder: Any, item: Any) -> Any:
    """Address, size, and whether it is ``bytes`` at all."""
    address = cgutils.alloca_once(builder, api.cstring)
    size = cgutils.alloca_once(builder, api.py_ssize_t)
    is_bytes = api.bytes_as_string_and_size(item, address, size)
    return builder.ptrtoint(builder.load(address), _I64), builder.load(size), is_bytes


def _object_of(api: Any, builder: Any, status: Any, address: Any, size: Any) -> Any:
    """A new object; null if there is no memory for it."""
    result = cgutils.alloca_once(builder, api.pyobj)
    is_bytes = builder.icmp_signed("==", status, _I64(IS_BYTES))
    with builder.if_else(is_bytes) as (then, otherwise):
        with then:
            data = builder.inttoptr(address, api.cstring)
            builder.store(api.bytes_from_string_and_size(data, size), result)
        with otherwise:
            is_none = builder.icmp_signed("==", status, _I64(IS_NONE))
            with builder.if_else(is_none) as (absent, number):
                with absent:
                    builder.store(api.make_none(), result)
                with number:
                    builder.store(api.long_from_longlong(status), result)
    return builder.load(result)


@unbox(_Key)
def _unbox_key(kind: Any, item: Any, c: Any) -> Any:
    address, size, is_bytes = _bytes_of(c.pyapi, c.builder, item)
    key = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    key.address, key.size = address, size
    return NativeValue(key._getvalue(), is_error=c.builder.not_(is_bytes))


@unbox(_Objects)
def _unbox_objects(_: Any, item: Any, __: Any) -> Any:
    return NativeValue(item)


@box(_Answer)
def _box_answer(kind: Any, value: Any, c: Any) -> Any:
    parts = cgutils.create_struct_proxy(kind)(c.context, c.builder, value=value)
    return _object_of(c.pyapi, c.builder, parts.status, parts.address, parts.size)


@box(_Count)
def _box_count(_: Any, value: Any, c: Any) -> Any:
    result = cgutils.alloca_once_value(c.builder, c.pyapi.get_null_object())
    with c.builder.if_then(c.builder.icmp_signed(">=", value, _I64(0))):
        c.builder.store(c.pyapi.long_from_longlong(value), result)
    return c.builder.load(result)


@intrinsic
def answer(_: Any, status: Any, address: Any, size: Any) -> Any:
    """What a kernel returns: ``IS_BYTES`` with an address and a size, ``IS_NONE``, or a number as it is."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        made.status, made.address, made.size = args
        return made._getvalue()

    return ANSWER(types.int64, types.int64, types.int64), build


@intrinsic
def count_of(_: Any, number: Any) -> Any:
    """What a kernel returns that uses objects."""

    def build(_: Any, __: Any, ___: Any, args: Any) -> Any:
        return args[0]

    return COUNT(types.int64), build


@intrinsic
def bytes_at(_: Any, objects: Any, number: Any) -> Any:
    """Address and size of the bytes at one place of a list; the size is below 0 after an exception."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        api = context.get_python_api(builder)
        found = cgutils.alloca_once_value(builder, _I64(0))
        length = cgutils.alloca_once_value(builder, _I64(-1))
        item = api.list_getitem(*args)
        with builder.if_then(cgutils.is_not_null(builder, item)):
            address, size, is_bytes = _bytes_of(api, builder, item)
            with builder.if_then(is_bytes):
                builder.store(address, found)
                builder.store(size, length)
        parts = [builder.load(found), builder.load(length)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.int64, 2)(objects, types.int64), build


@intrinsic
def put_answer(_: Any, objects: Any, number: Any, status: Any, address: Any, size: Any) -> Any:
    """Put what ``answer`` would be to one place of a list; false after an exception."""

    def build(context: Any, builder: Any, _: Any, args: Any) -> Any:
        api = context.get_python_api(builder)
        objects, number, *parts = args
        is_put = cgutils.alloca_once_value(builder, ir.IntType(1)(0))
        item = _object_of(api, builder, *parts)
        with builder.if_then(cgutils.is_not_null(builder, item)):
            status = api.list_setitem(objects, number, item)
            builder.store(builder.icmp_signed("==", status, status.type(0)), is_put)
        return builder.load(is_put)

    return types.boolean(objects, types.int64, types.int64, types.int64, types.int64), build
