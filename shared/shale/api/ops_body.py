"""Operations in the body of ``POST /v1/batch`` and ``POST /v1/txn`` (docs/http.md 3).

``["put", key, value]``, ``["merge", key, operand]``, both perhaps with a lifetime behind, and ``["delete", key]``, in
the order of the writes; keys and values are base64 in JSON and binary in msgpack.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from shale.api.fields import binary, known_only, life_in_body
from shale.engine.batch import WriteBatch
from shale.service.bodies import decode
from shale.service.problems import Problem, bad_request, too_large

_FIELDS = frozenset({"ops"})
Items: TypeAlias = "list[object] | tuple[object, ...]"


def decode_batch(data: bytes | bytearray, *, packed: bool, max_key_bytes: int, max_rows: int) -> WriteBatch:
    """Read the body of a batch.

    Raises:
        Problem: the body is malformed (400) or has too many rows (413); names the operation.
        InvalidRequestError: a key, value or lifetime is impossible.
    """
    body = decode(data, packed=packed)
    known_only(body, _FIELDS)
    ops = items(body.get("ops"), "ops", max_rows=max_rows)
    if not ops:
        raise bad_request("ops: the batch is empty")
    return batch_of(ops, packed=packed, max_key_bytes=max_key_bytes)


def items(value: object, name: str, *, max_rows: int) -> Items:
    """A list of a body.

    Raises:
        Problem: none (400), or too long (413).
    """
    if not isinstance(value, list | tuple):
        raise bad_request(f"{name}: a list of operations is required")
    if len(value) > max_rows:
        raise too_large(f"{name}: there are {len(value)} operations; at most {max_rows} are taken")
    return value


def batch_of(ops: Items, *, packed: bool, max_key_bytes: int) -> WriteBatch:
    """The operations as a batch; raises like ``decode_batch``."""
    batch = WriteBatch(max_key_bytes=max_key_bytes)
    columns = _plain_puts(ops) if packed else None
    if columns is not None:
        batch.put_many(*columns)
    else:
        for place, op in enumerate(ops):
            _add(batch, op, f"ops[{place}]", packed=packed)
    return batch


def _plain_puts(ops: Items) -> tuple[Sequence[bytes], Sequence[bytes]] | None:
    """Keys and values of what is nothing but puts, as a bulk load is; ``None`` if there is anything else."""
    if not ops or set(map(type, ops)) != {tuple}:
        return None
    try:
        kinds, keys, values = zip(*cast("Sequence[tuple[Any, ...]]", ops), strict=True)
    except ValueError:  # of other lengths
        return None
    if kinds.count("put") != len(ops) or set(map(type, keys)) != {bytes} or set(map(type, values)) != {bytes}:
        return None
    return keys, values


def _add(batch: WriteBatch, op: object, name: str, *, packed: bool) -> None:
    match op:
        case ["put" | "merge" as kind, key, value, *rest] if len(rest) < 2:
            key = binary(key, f"{name} key", packed=packed)
            value = binary(value, f"{name} value", packed=packed)
            ttl, expire_at = life_in_body(rest[0] if rest else None, f"{name} ttl_ms")
            write = batch.put if kind == "put" else batch.merge
            write(key, value, ttl=ttl, expire_at=expire_at)
        case ["delete", key]:
            batch.delete(binary(key, f"{name} key", packed=packed))
        case _:
            raise _not_an_op(name)


def _not_an_op(name: str) -> Problem:
    return bad_request(
        f'{name}: none of ["put", key, value], ["put", key, value, ttl_ms], ["merge", key, operand], ["delete", key]'
    )
