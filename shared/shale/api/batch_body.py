"""The body of ``POST /v1/batch`` (docs/operations.md 4).

``{"ops": [["put", key, value], ["put", key, value, ttl_ms], ["delete", key], …]}``, in the order of the writes; keys
and values are base64 in JSON and binary in msgpack.  The whole batch is one commit.
"""

from shale.api.fields import binary, known_only, ttl_s
from shale.engine.batch import WriteBatch
from shale.service.bodies import decode
from shale.service.problems import Problem, bad_request, too_large

_FIELDS = frozenset({"ops"})


def decode_batch(data: bytearray, *, packed: bool, max_key_bytes: int, max_rows: int) -> WriteBatch:
    """Read a batch.

    Raises:
        Problem: the body is malformed (400) or has too many rows (413); names the operation.
        InvalidRequestError: a key or value is impossible.
    """
    body = decode(data, packed=packed)
    known_only(body, _FIELDS)
    ops = body.get("ops")
    if not isinstance(ops, list | tuple):
        raise bad_request("ops: a list of operations is required")
    if not ops:
        raise bad_request("ops: the batch is empty")
    if len(ops) > max_rows:
        raise too_large(f"ops: the batch has {len(ops)} operations; at most {max_rows} are taken")
    batch = WriteBatch(max_key_bytes=max_key_bytes)
    if packed:
        _add_packed(batch, ops)
    else:
        for place, op in enumerate(ops):
            _add(batch, op, place, packed=False)
    return batch


def _add_packed(batch: WriteBatch, ops: "list[object] | tuple[object, ...]") -> None:
    """The common operation first: a bulk load is a long list of plain puts."""
    put = batch.put
    for place, op in enumerate(ops):
        if type(op) is tuple and len(op) == 3 and op[0] == "put" and type(op[1]) is bytes and type(op[2]) is bytes:
            put(op[1], op[2])
        else:
            _add(batch, op, place, packed=True)


def _add(batch: WriteBatch, op: object, place: int, *, packed: bool) -> None:
    name = f"ops[{place}]"
    match op:
        case ["put", key, value]:
            batch.put(binary(key, f"{name} key", packed=packed), binary(value, f"{name} value", packed=packed))
        case ["put", key, value, ttl_ms]:
            batch.put(
                binary(key, f"{name} key", packed=packed),
                binary(value, f"{name} value", packed=packed),
                ttl=ttl_s(ttl_ms, f"{name} ttl_ms"),
            )
        case ["delete", key]:
            batch.delete(binary(key, f"{name} key", packed=packed))
        case _:
            raise _not_an_op(name)


def _not_an_op(name: str) -> Problem:
    return bad_request(f'{name}: neither ["put", key, value], ["put", key, value, ttl_ms] nor ["delete", key]')
