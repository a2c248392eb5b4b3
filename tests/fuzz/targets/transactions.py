"""The body of ``POST /v1/txn``: the parser against a plain reading of the grammar, and the port against its rows."""

import base64
import json
import random
import re
from http import HTTPStatus
from typing import Any

import msgpack
import orjson

from shale.api.txn_body import CompareClause, txn_from_body
from shale.engine.write.batch import WriteBatch
from shale.errors import InvalidRequestError
from shale.service.http.documents import decode
from shale.service.http.problems import Problem
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Row
from tests.fuzz import loop
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import require_equal
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets.http import mutate_msgpack, send_request
from tests.fuzz.targets.metadata import JSON_MUTATION
from tests.fuzz.transaction_grammar import SEQ_MAX, TTL_MAX, Grammar, PlainBody, PlainWrite, Refused, Unclear
from tests.unit.api.harness import open_port

_PORT_ROWS_MAX, _PORT_KEY_MAX = 4000, 65_535
_PORT = loop.kept(lambda: open_port(limits={"max_batch_rows": _PORT_ROWS_MAX}, merge_operator="concatenate"))
_KEY_MAX, _ROWS_MAX = 40, 30
"""Limits of the parser, low enough that inputs reach them; those of the port are higher."""
_KEYS = (b"a", b"b", b"k\0\xff", b"absent")
_START = {b"a": b"1", b"b": b"", b"k\0\xff": b"v"}
"""The rows of the port's database before each request."""
_VALUES = (b"1", b"", b"v", b"\xff\x80", b"x" * 300)
_LIFETIMES: tuple[Any, ...] = (None, 5, 0, "never", 5.0, {"expire_at": 99_999_999_999_999}, 2**53)
_LARGE_BYTES = 1 << 14
_TTL_ROUNDING = 1 << 12
_NOW_MS = 1_700_000_000_000
_PLACE = re.compile(r"(compare|ops)\[(\d+)\]")


def _transaction(data: bytes) -> None:
    """The first byte: msgpack or JSON, and whether the port runs it, too."""
    options, body = (data or b"\0")[0], data[1:]
    packed = bool(options & 1)
    try:
        fields = decode(body, packed=packed)
    except Problem:
        return
    _compare_parsers(fields, packed=packed)
    if options & 2:
        loop.run(_sent(body, _plain(fields, packed=packed, rows_max=_PORT_ROWS_MAX), packed=packed))


def _plain(fields: dict[str, Any], *, packed: bool, rows_max: int) -> PlainBody | Refused | Unclear:
    try:
        return Grammar(packed=packed, rows_max=rows_max).read(fields)
    except (Refused, Unclear) as refused:
        return refused


def _compare_parsers(fields: dict[str, Any], *, packed: bool) -> None:
    """Compare the parser with the grammar, at limits that small bodies reach."""
    wanted = _plain(fields, packed=packed, rows_max=_ROWS_MAX)
    try:
        found = txn_from_body(fields, packed=packed, max_key_bytes=_KEY_MAX, max_rows=_ROWS_MAX)
    except Problem as problem:
        _check_problem(problem, wanted)
        return
    except InvalidRequestError as error:
        if isinstance(wanted, PlainBody) and all(0 < len(op.key) <= _KEY_MAX for op in wanted.ops):
            raise Difference(f"a key that is possible is refused: {error}") from error
        return
    if isinstance(wanted, Refused):
        raise Difference(f"a body that the grammar has not is taken: {wanted.place}, {found}")
    if isinstance(wanted, PlainBody):
        _check_compare(found.compare, wanted)
        _check_writes(found.writes, wanted.ops)


def _check_problem(problem: Problem, wanted: PlainBody | Refused | Unclear) -> None:
    if isinstance(wanted, Unclear):
        return
    if isinstance(wanted, PlainBody):
        raise Difference(f"a body of the grammar is refused: {problem.detail}")
    if problem.status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        raise Difference(f"a malformed body is {problem.status}: {problem.detail}")
    named = _PLACE.match(problem.detail)
    if (named and named[0]) != wanted.place:
        raise Difference(f"a problem names another item: {wanted.place}, {problem.detail}")


def _check_compare(found: tuple[CompareClause, ...], wanted: PlainBody) -> None:
    shown = [(each.key, each.is_present, each.value, each.seq) for each in found]
    plain = [
        (key, kind != "absent", more if kind == "value" else None, more if kind == "seq" else None)
        for kind, key, more in wanted.compare
    ]
    require_equal("comparisons", shown, plain)
    for clause, (kind, key, more) in zip(found, wanted.compare, strict=True):
        for row in (None, Row(key, b"1", 7, None, None), Row(key, b"", 0, None, None)):
            require_equal("whether a comparison holds", clause.holds(row), _holds(kind, more, row))


def _holds(kind: str, more: Any, row: Row | None) -> bool:
    match kind:
        case "absent":
            return row is None
        case "present":
            return row is not None
        case "value":
            return row is not None and row.value == more
        case _:
            return row is not None and row.seq == more


def _effective(ops: list[PlainWrite]) -> dict[bytes, list[PlainWrite]]:
    """Return the writes of each key that count, oldest first."""
    found: dict[bytes, list[PlainWrite]] = {}
    for op in ops:
        found[op.key] = [*found.get(op.key, ()), op] if op.kind == "merge" else [op]
    return found


def _check_writes(batch: WriteBatch, ops: list[PlainWrite]) -> None:
    wanted = _effective(ops)
    require_equal("keys of a batch", set(batch), set(wanted))
    for key, of_key in wanted.items():
        versions = batch.versions(key, None, _NOW_MS)[::-1]
        require_equal("number of writes of a key", len(versions), len(of_key))
        for version, op in zip(versions, of_key, strict=True):
            kind = {FLAG_TOMBSTONE: "delete", FLAG_MERGE: "merge"}.get(
                version.flags & (FLAG_TOMBSTONE | FLAG_MERGE), "put"
            )
            require_equal("a write", (kind, version.key, version.value), (op.kind, op.key, op.value))
            if kind != "delete":
                _check_expiry(version.expire_ts if version.flags & FLAG_EXPIRE_TS else None, op)


def _check_expiry(found: int | None, op: PlainWrite) -> None:
    wanted = op.expire_at
    if op.ttl_ms is not None and op.ttl_ms >= 0:
        wanted = _NOW_MS + op.ttl_ms
        if op.ttl_ms > TTL_MAX - _TTL_ROUNDING:
            return  # as long as for ever, or rounded to that
    if (found is None) != (wanted is None):
        raise Difference(f"the expiry of a write: {found} and {wanted}")
    if found is not None and wanted is not None and abs(found - wanted) > wanted >> 52:
        raise Difference(f"the expiry of a write: {found} and {wanted}")


async def _sent(body: bytes, plain: PlainBody | Refused | Unclear, *, packed: bool) -> None:
    """Send a body, and compare the status, the failed comparisons and the rows with what the grammar says."""
    port = await _PORT()
    ops = _effective(plain.ops) if isinstance(plain, PlainBody) else {}
    compare = plain.compare if isinstance(plain, PlainBody) else []
    if any(len(key) > _PORT_KEY_MAX for key in (*ops, *(key for _, key, _ in compare))):
        return
    reset = port.db.new_batch()
    for key, value in _START.items():
        reset.put(key, value)
    for key in filter(None, ops.keys() - _START.keys()):
        reset.delete(key)
    await port.db.write(reset)
    rows = {key: await port.db.get_row(key) for _, key, _ in compare}
    head = b"POST /v1/txn\r\ncontent-type: application/" + (b"msgpack" if packed else b"json")
    status, answer = await send_request(port.app, head + b"\r\n\r\n" + body)
    if isinstance(plain, Refused) and status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
        raise Difference(f"a malformed body is {status}: {answer[:200]!r}")
    if not isinstance(plain, PlainBody):
        return
    failed = [at for at, (kind, key, more) in enumerate(compare) if not _holds(kind, more, rows[key])]
    if failed and all(ops):
        require_equal("status and failed comparisons", (status, json.loads(answer).get("failed")), (412, failed))
    for key, of_key in ops.items():
        if key and all(op.ttl_ms is None and op.expire_at is None for op in of_key):
            before = _START.get(key)
            after = _merged(before, of_key) if status == HTTPStatus.OK else before
            require_equal("a row after the transaction", await port.db.get(key), after)
    has_times = any(op.ttl_ms is not None or op.expire_at is not None for op in plain.ops)
    if not failed and not has_times and all(ops):
        require_equal("the status of a transaction", status, HTTPStatus.OK)


def _merged(value: bytes | None, ops: list[PlainWrite]) -> bytes | None:
    for op in ops:
        match op.kind:
            case "put":
                value = op.value
            case "delete":
                value = None
            case _:
                value = (value or b"") + op.value
    return value


def _item(rng: random.Random, name: str) -> Any:
    """Return a valid comparison or write, as an array or an object."""
    key, value = rng.choice(_KEYS), rng.choice(_VALUES)
    if name == "compare":
        shapes: list[dict[str, Any]] = [
            {"check": rng.choice(("absent", "present")), "key": key},
            {"check": "value", "key": key, "value": rng.choice((_START.get(key, b""), value))},
            {"check": "seq", "key": key, "seq": rng.choice((0, 7, 7.0, SEQ_MAX, 1))},
        ]
    else:
        lifetime = rng.choice(_LIFETIMES)
        named = lifetime if isinstance(lifetime, dict) else {"ttl_ms": lifetime}
        write = {"op": rng.choice(("put", "put", "merge")), "key": key, "value": value}
        if rng.random() < 0.5:
            array = list(write.values())
            return array if lifetime is None else [*array, lifetime]
        shapes = [{"op": "delete", "key": key}, write, {**write, **named}]
    shape = rng.choice(shapes)
    is_long = "ttl_ms" in shape or "expire_at" in shape
    return shape if is_long or rng.random() < 0.5 else list(shape.values())


def _body(rng: random.Random, items: int) -> dict[str, Any]:
    counts = {"compare": rng.randrange(items), "ops": rng.randrange(items)}
    return {name: [_item(rng, name) for _ in range(count)] for name, count in counts.items()}


def _bent(rng: random.Random, value: Any) -> Any:
    """Change one part of an item: a field less or more, another value, or another name."""
    odd = rng.choice((None, True, "", "never", "a", b"", b"k" * 41, "YQ", "YR==", -1, 2**64, 0.5, 1e300, {}, [], [1]))
    if isinstance(value, dict) and value:
        name = rng.choice(list(value))
        match rng.randrange(4):
            case 0:
                return {each: value[each] for each in value if each != name}
            case 1:
                return {**value, rng.choice(("seq", "value", "ttl_ms", "expire_at", "x")): odd}
            case _:
                return {**value, name: odd}
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        match rng.randrange(4):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, odd]
            case _:
                return [*value[:at], odd, *value[at + 1 :]]
    return odd


def _encoded(body: Any, *, packed: bool) -> bytes:
    if packed:
        return bytes(msgpack.packb(body) or b"")
    return orjson.dumps(_as_text(body))


def _as_text(value: Any) -> Any:
    """Return what JSON has in the place of bytes."""
    if isinstance(value, dict):
        return {name: _as_text(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Make another body, or change an item of this one."""
    packed = bool((data or b"\0")[0] & 1)
    kind = rng.random()
    if kind < 0.1 or (len(data) > _LARGE_BYTES and kind < 0.95):  # a large body takes as long as a hundred others
        packed = rng.random() < 0.5
        body: Any = _body(rng, rng.choice((2, 5, 5, 5, 60)))
        return bytes([packed | rng.randrange(2) << 1]) + _encoded(body, packed=packed)
    if kind < 0.3:
        return data[:1] + (mutate_msgpack if packed else JSON_MUTATION)(rng, data[1:])
    try:
        body = msgpack.unpackb(data[1:]) if packed else orjson.loads(data[1:])
        name = rng.choice(("compare", "ops"))
        items = list(body.get(name) or ())
        at = rng.randrange(len(items) + 1)
        if kind < 0.33:
            items *= 2 if rng.random() < 0.98 else 2500 // max(len(items), 1)  # decoded in pieces, and in a thread
        elif kind < 0.5 or at == len(items):
            items.insert(at, _item(rng, name))
        else:
            items[at] = _bent(rng, items[at])
        return data[:1] + _encoded({**body, name: items[: _PORT_ROWS_MAX + 1]}, packed=packed)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, msgpack.UnpackException):
        return mutate_bytes(rng, data)


def _seeds() -> list[bytes]:
    rng = random.Random(1)
    return [
        bytes([packed | 2]) + _encoded(_body(rng, items), packed=bool(packed))
        for packed in (0, 1)
        for items in (3, 3, 4, 5, 6, 12)
    ]


def targets() -> list[Target]:
    modules = ("shale.api.txn_body", "shale.api.ops_body", "shale.api.fields", "shale.api.routes.writes")
    limits = ("shale.api.limits", "shale.service.http.documents")
    return [Target("transaction body", _transaction, _seeds, (), (*modules, *limits), _mutate, 0.9)]
