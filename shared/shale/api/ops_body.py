"""Operations in the body of ``POST /v1/batch`` and ``POST /v1/txn`` (docs/reference/http.md 3).

``["put", key, value]``, ``["merge", key, operand]``, both with an optional lifetime at the end, and
``["delete", key]``, in the order of the writes; keys and values are base64 in JSON and binary in msgpack.
Generated clients send objects instead: ``{"op": "put", "key", "value", "ttl_ms" or "expire_at"}``.
"""

from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, cast

from shale.api.fields import binary, expiry_from_body, reject_unknown_fields
from shale.engine.write.batch import WriteBatch
from shale.errors import InvalidRequestError
from shale.service.http.documents import Fields
from shale.service.http.problems import Problem, bad_request, too_large

_FIELDS = frozenset({"ops"})
_from_base64 = partial(a2b_base64, strict_mode=True)
_DELETE_FIELDS = frozenset({"op", "key"})
_WRITE_FIELDS = _DELETE_FIELDS | {"value", "ttl_ms", "expire_at"}
Items: TypeAlias = "list[object] | tuple[object, ...]"


def batch_from_body(body: Fields, *, packed: bool, max_key_bytes: int, max_rows: int) -> WriteBatch:
    """Build the batch of a body.

    Raises:
        Problem: the body is malformed (400) or has too many rows (413); the message names the operation.
        InvalidRequestError: a key, value or lifetime is invalid; the message names the operation, too.
    """
    reject_unknown_fields(body, _FIELDS)
    ops = items(body.get("ops"), "ops", max_rows=max_rows)
    if not ops:
        raise bad_request("ops: the batch is empty")
    return batch_from_ops(ops, packed=packed, max_key_bytes=max_key_bytes)


def items(value: object, name: str, *, max_rows: int) -> Items:
    """Return a field that is a list of operations.

    Raises:
        Problem: the field is not a list (400), or it is too long (413).
    """
    if not isinstance(value, list | tuple):
        raise bad_request(f"{name}: a list of operations is required")
    if len(value) > max_rows:
        raise too_large(f"{name}: {len(value)} operations; the limit is {max_rows}")
    return value


def batch_from_ops(ops: Items, *, packed: bool, max_key_bytes: int) -> WriteBatch:
    """Build a batch of operations; raises like ``batch_from_body``."""
    columns = _plain_puts(ops, packed=packed)
    if columns is not None:
        batch = WriteBatch(max_key_bytes=max_key_bytes)
        with suppress(InvalidRequestError):  # the message has to name the operation
            batch.put_many(*columns)
            return batch
    batch = WriteBatch(max_key_bytes=max_key_bytes)
    for place, op in enumerate(ops):
        name = f"ops[{place}]"
        try:
            _add(batch, op, name, packed=packed)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{name}: {error}") from error
    return batch


def _plain_puts(ops: Items, *, packed: bool) -> tuple[Sequence[bytes], Sequence[bytes]] | None:
    """Return keys and values of a list of plain puts, as bulk loads send it; ``None`` for any other list."""
    if not ops or set(map(type, ops)) != {tuple if packed else list}:
        return None
    try:
        kinds, keys, values = zip(*cast("Sequence[tuple[Any, ...]]", ops), strict=True)
    except ValueError:  # operations of other lengths
        return None
    text = bytes if packed else str
    if kinds.count("put") != len(ops) or set(map(type, keys)) != {text} or set(map(type, values)) != {text}:
        return None
    if packed:
        return keys, values
    try:
        return [_from_base64(key) for key in keys], [_from_base64(value) for value in values]
    except ValueError:  # the message has to name the operation
        return None


def _add(batch: WriteBatch, op: object, name: str, *, packed: bool) -> None:
    if isinstance(op, dict):
        op = _as_array(op, name)
    match op:
        case ["put" | "merge" as kind, key, value, *rest] if len(rest) < 2:
            key = binary(key, f"{name} key", packed=packed)
            value = binary(value, f"{name} value", packed=packed)
            ttl, expire_at = expiry_from_body(rest[0] if rest else None, f"{name} ttl_ms")
            write = batch.put if kind == "put" else batch.merge
            write(key, value, ttl=ttl, expire_at=expire_at)
        case ["delete", key]:
            batch.delete(binary(key, f"{name} key", packed=packed))
        case _:
            raise _not_an_op(name)


def _as_array(op: Mapping[str, object], name: str) -> list[object]:
    """Return the array form of an operation that is an object."""
    if op.get("op") == "delete":
        reject_unknown_fields(op, _DELETE_FIELDS, name)
        return ["delete", op.get("key")]
    reject_unknown_fields(op, _WRITE_FIELDS, name)
    ttl, expire_at = op.get("ttl_ms"), op.get("expire_at")
    if ttl is not None and expire_at is not None:
        raise bad_request(f"{name}: ttl_ms and expire_at: use one or the other")
    lifetime = ttl if expire_at is None else {"expire_at": expire_at}
    return [op.get("op"), op.get("key"), op.get("value"), lifetime]


def _not_an_op(name: str) -> Problem:
    return bad_request(
        f'{name}: must be ["put", key, value], ["put", key, value, ttl_ms], ["merge", key, operand] or '
        '["delete", key], or an object with op, key and value'
    )
