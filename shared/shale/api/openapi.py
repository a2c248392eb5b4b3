"""The OpenAPI 3.1 document of a data port: the routes that it serves."""

from collections.abc import Callable
from functools import cache

import orjson

from shale.api.openapi_schemas import (
    BASE64,
    DURABILITY_READ,
    DURABILITY_WRITE,
    EXPIRE_TS,
    INT,
    JSON,
    KEY,
    KEY64,
    LIFE,
    MSGPACK,
    NAME,
    PROBLEM,
    SNAPSHOT,
    TTL,
    VALUE,
    WRITTEN,
    Json,
    answer,
    body,
    problems,
    table,
)
from shale.service.build import version

_OP: Json = {
    "description": "Operations in the order in which they apply.",
    "oneOf": [
        {
            "type": "array",
            "prefixItems": [{"enum": ["put", "merge"]}, KEY64, BASE64, TTL],
            "items": False,
            "minItems": 3,
        },
        {"type": "array", "prefixItems": [{"const": "delete"}, KEY64], "items": False, "minItems": 2},
    ],
}
_COMPARE: Json = {
    "oneOf": [
        {"type": "array", "prefixItems": [{"enum": ["absent", "present"]}, KEY64], "items": False, "minItems": 2},
        {"type": "array", "prefixItems": [{"const": "value"}, KEY64, BASE64], "items": False, "minItems": 3},
        {
            "type": "array",
            "prefixItems": [{"const": "seq"}, KEY64, {"type": "integer", "minimum": 0, "maximum": 1 << 53}],
            "items": False,
            "minItems": 3,
        },
    ]
}
_COMMIT = answer(
    "Written.",
    {
        "type": "object",
        "required": ["seq", "rows"],
        "properties": dict.fromkeys(("seq", "create_ts", "rows"), INT),
    },
    WRITTEN,
)


def _key_calls(names: frozenset[str]) -> Json:
    headers = {**WRITTEN, "X-Shale-Expire-Ts": EXPIRE_TS}
    found: Json = {
        "parameters": [KEY],
        "get": {
            "operationId": "get",
            "summary": "Read one row.",
            "parameters": [SNAPSHOT, DURABILITY_READ],
            "responses": {
                "200": {"description": "The value.", "headers": headers, "content": VALUE},
                **problems("400", "404", "410"),
            },
        },
    }
    found["head"] = {
        **found["get"],
        "operationId": "head",
        "summary": "Check whether a row exists; its metadata is in the headers.",
        "responses": {"200": {"description": "The row exists.", "headers": headers}, **problems("400", "404", "410")},
    }
    if "batch" not in names:
        return found
    done = {"description": "Written.", "headers": WRITTEN}
    for method, name, summary in (
        ("put", "put", "Write one row; the body is the value."),
        ("patch", "merge", "Add a merge operand; the body is the operand."),
    ):
        found[method] = {
            "operationId": name,
            "summary": summary,
            "parameters": [DURABILITY_WRITE, NAME, *LIFE],
            "requestBody": {"required": True, "content": VALUE},
            "responses": {"204": done, **problems("400", "408", "413", "415", "422")},
        }
    found["delete"] = {
        "operationId": "delete",
        "summary": "Delete one row; succeeds also if it does not exist.",
        "parameters": [DURABILITY_WRITE, NAME],
        "responses": {"204": done, **problems("400", "422")},
    }
    return found


def _post(name: str, summary: str, parameters: list[Json], request: Json, responses: Json) -> Json:
    """Return a call by POST whose body is a table."""
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "parameters": parameters,
            "requestBody": body(request, JSON, MSGPACK),
            "responses": responses,
        }
    }


def _batch_call() -> Json:
    return _post(
        "batch",
        "Apply many writes in one commit; keys and values are base64 in JSON, binary in msgpack.",
        [DURABILITY_WRITE, NAME],
        table({"ops": {"type": "array", "minItems": 1, "items": _OP}}, required=("ops",)),
        {"200": _COMMIT, **problems("400", "408", "413", "415", "422")},
    )


def _txn_call() -> Json:
    return _post(
        "txn",
        "Apply writes atomically if every comparison holds.",
        [DURABILITY_WRITE, NAME],
        table({"compare": {"type": "array", "items": _COMPARE}, "ops": {"type": "array", "items": _OP}}),
        {"200": _COMMIT, **problems("400", "408", "409", "412", "413", "415", "422")},
    )


def _get_many_call() -> Json:
    value = {"oneOf": [BASE64, {"type": "null"}]}
    schema = {"type": "object", "required": ["values"], "properties": {"values": {"type": "array", "items": value}}}
    return _post(
        "getMany",
        "Read many rows in one request.",
        [SNAPSHOT, DURABILITY_READ],
        table({"keys": {"type": "array", "items": KEY64}}, required=("keys",)),
        {"200": answer("Values in the order of the keys.", schema), **problems("400", "408", "410", "413", "415")},
    )


def _scan_call() -> Json:
    request = table(
        {
            "start": {**BASE64, "description": "Inclusive."},
            "stop": {**BASE64, "description": "Exclusive."},
            "prefix": BASE64,
            "reverse": {"type": "boolean", "default": False},
            "limit": {"type": "integer", "minimum": 0, "maximum": 1 << 53},
            "after": {**KEY64, "description": "Only keys after this one, in scan order."},
            "resume": {"type": "string", "description": "The token of an earlier response for the same range."},
            "same_state": {
                "type": "boolean",
                "description": "Answer 410 if the state has changed since the token was issued.",
            },
        }
    )
    line = {
        "type": "object",
        "description": "A row; the last line has either end, rows and resume, or error.",
        "properties": {
            "key": BASE64,
            "value": BASE64,
            "seq": INT,
            "create_ts": INT,
            "expire_ts": INT,
            "end": {"type": "boolean"},
            "rows": INT,
            "resume": {"type": ["string", "null"]},
            "error": {"$ref": "#/components/schemas/Problem"},
        },
    }
    headers = {
        "X-Shale-Seq": {"schema": INT, "description": "The newest commit that is visible to the scan."},
        "X-Shale-Resume": {
            "schema": {"type": "string"},
            "description": "A token to resume a scan that is interrupted.",
        },
        "X-Shale-Same-State": {
            "schema": {"type": "string", "enum": ["true", "false"]},
            "description": "For a resumed scan: whether the state is the same.",
        },
    }
    content = {
        "application/x-ndjson": {"schema": line},
        MSGPACK: {"schema": {}},
        "application/vnd.apache.arrow.stream": {"schema": {}},
    }
    return {
        "post": {
            "operationId": "scan",
            "summary": "Scan a range of rows in key order, streamed in the format of the Accept header.",
            "parameters": [SNAPSHOT, DURABILITY_READ],
            "requestBody": body(request, JSON, MSGPACK, required=False),
            "responses": {
                "200": {"description": "One line per row.", "headers": headers, "content": content},
                **problems("400", "406", "408", "410", "413", "415"),
            },
        }
    }


_LEASE_BODY = body(
    table(
        {
            "lifetime_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "Lifetime of the lease; by default the maximum.",
            }
        }
    ),
    JSON,
    MSGPACK,
    required=False,
)
_LEASE = {
    "type": "object",
    "required": ["id", "seq", "expires_ms"],
    "properties": {"id": {"type": "string"}, "seq": INT, "expires_ms": INT},
}


def _snapshots_call() -> Json:
    return {
        "post": {
            "operationId": "openSnapshot",
            "summary": "Open a snapshot of the current state with a lease.",
            "parameters": [DURABILITY_READ],
            "requestBody": _LEASE_BODY,
            "responses": {
                "201": answer("The snapshot.", _LEASE, {"Location": {"schema": {"type": "string"}}}),
                **problems("400", "408", "413", "415"),
            },
        }
    }


def _snapshot_call() -> Json:
    identity = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return {
        "parameters": [identity],
        "put": {
            "operationId": "renewSnapshot",
            "summary": "Renew the lease, counted from now.",
            "requestBody": _LEASE_BODY,
            "responses": {"200": answer("The snapshot.", _LEASE), **problems("400", "408", "410", "413", "415")},
        },
        "delete": {
            "operationId": "closeSnapshot",
            "summary": "Close a snapshot; succeeds also if it has expired.",
            "responses": {"204": {"description": "The snapshot is closed."}, **problems("400")},
        },
    }


def _writer_call() -> Json:
    text = {"type": ["string", "null"]}
    fields = {"epoch": INT, "holder": text, "host": text, "since_s": {"type": ["integer", "null"]}}
    schema = {"type": "object", "required": list(fields), "properties": fields}
    return {
        "get": {
            "operationId": "getWriter",
            "summary": "Tell which writer answers: its epoch, and what its sign of life tells.",
            "responses": {"200": answer("The writer.", schema), **problems("400")},
        }
    }


_CALLS: dict[str, tuple[str, Callable[[], Json]]] = {
    "batch": ("/v1/batch", _batch_call),
    "txn": ("/v1/txn", _txn_call),
    "get-many": ("/v1/get-many", _get_many_call),
    "scan": ("/v1/scan", _scan_call),
    "snapshots": ("/v1/snapshots", _snapshots_call),
    "snapshot": ("/v1/snapshots/{id}", _snapshot_call),
    "writer": ("/v1/writer", _writer_call),
}


@cache
def document(names: frozenset[str]) -> bytes:
    """Return the document as JSON for a port with the routes of these names."""
    paths = {"/v1/kv/{key}": _key_calls(names)}
    paths |= {path: make() for name, (path, make) in _CALLS.items() if name in names}
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Shale",
                "version": version(),
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": paths,
            "components": {
                "schemas": {"Problem": PROBLEM},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"token": []}],
        }
    )
