"""The description of the network interface, OpenAPI 3.1: of the calls that a port has."""

from collections.abc import Callable
from functools import cache

import orjson

from shale.api.openapi_parts import (
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
    "description": "In the order of the writes.",
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
        "summary": "Whether there is a row, and what its headers say of it.",
        "responses": {"200": {"description": "There is.", "headers": headers}, **problems("400", "404", "410")},
    }
    if "batch" not in names:
        return found
    done = {"description": "Written.", "headers": WRITTEN}
    for method, name, summary in (
        ("put", "put", "Write one row; the body is the value."),
        ("patch", "merge", "Add an operand for the database's merge operator; the body is the operand."),
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
        "summary": "Delete one row; a missing one is deleted as well.",
        "parameters": [DURABILITY_WRITE, NAME],
        "responses": {"204": done, **problems("400", "422")},
    }
    return found


def _batch_call() -> Json:
    request = table({"ops": {"type": "array", "minItems": 1, "items": _OP}}, required=("ops",))
    return {
        "post": {
            "operationId": "batch",
            "summary": "Many writes as one commit; keys and values are base64 in JSON, binary in msgpack.",
            "parameters": [DURABILITY_WRITE, NAME],
            "requestBody": body(request, JSON, MSGPACK),
            "responses": {"200": _COMMIT, **problems("400", "408", "413", "415", "422")},
        }
    }


def _txn_call() -> Json:
    properties = {"compare": {"type": "array", "items": _COMPARE}, "ops": {"type": "array", "items": _OP}}
    return {
        "post": {
            "operationId": "txn",
            "summary": "Writes that happen if every compare holds, all or nothing.",
            "parameters": [DURABILITY_WRITE, NAME],
            "requestBody": body(table(properties), JSON, MSGPACK),
            "responses": {"200": _COMMIT, **problems("400", "408", "409", "412", "413", "415", "422")},
        }
    }


def _get_many_call() -> Json:
    request = table({"keys": {"type": "array", "items": KEY64}}, required=("keys",))
    value = {"oneOf": [BASE64, {"type": "null"}]}
    schema = {"type": "object", "required": ["values"], "properties": {"values": {"type": "array", "items": value}}}
    return {
        "post": {
            "operationId": "getMany",
            "summary": "Many rows in one trip.",
            "parameters": [SNAPSHOT, DURABILITY_READ],
            "requestBody": body(request, JSON, MSGPACK),
            "responses": {
                "200": answer("Values in the order of the keys.", schema),
                **problems("400", "408", "410", "413", "415"),
            },
        }
    }


def _scan_call() -> Json:
    request = table(
        {
            "start": {**BASE64, "description": "Inclusive."},
            "stop": {**BASE64, "description": "Exclusive."},
            "prefix": BASE64,
            "reverse": {"type": "boolean", "default": False},
            "limit": {"type": "integer", "minimum": 0, "maximum": 1 << 53},
            "after": {**KEY64, "description": "Only what lies behind this key, in reading order."},
            "resume": {"type": "string", "description": "The token of an earlier answer to the same range."},
            "same_state": {"type": "boolean", "description": "Rather 410 than another state than before."},
        }
    )
    line = {
        "type": "object",
        "description": "A row; the last line has end, rows and resume, or error.",
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
        "X-Shale-Seq": {"schema": INT, "description": "The newest commit that the scan shows."},
        "X-Shale-Resume": {"schema": {"type": "string"}, "description": "A token, for a scan that is cut."},
        "X-Shale-Same-State": {
            "schema": {"type": "string", "enum": ["true", "false"]},
            "description": "Of a resumed scan: whether it goes on in the same state.",
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
            "summary": "A range of rows in key order, streamed in the format that Accept asks for.",
            "parameters": [SNAPSHOT, DURABILITY_READ],
            "requestBody": body(request, JSON, MSGPACK, required=False),
            "responses": {
                "200": {"description": "One line per row.", "headers": headers, "content": content},
                **problems("400", "406", "408", "410", "413", "415"),
            },
        }
    }


_LEASE_BODY = body(
    table({"lifetime_ms": {"type": "integer", "minimum": 1, "description": "Of the lease; by default the longest."}}),
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
            "summary": "Keep the state of now for reads, as long as its lease lasts.",
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
            "summary": "Let the lease end later, counted from now.",
            "requestBody": _LEASE_BODY,
            "responses": {"200": answer("The snapshot.", _LEASE), **problems("400", "408", "410", "413", "415")},
        },
        "delete": {
            "operationId": "closeSnapshot",
            "summary": "Let go of a snapshot; one that is over is let go of as well.",
            "responses": {"204": {"description": "It is over."}, **problems("400")},
        },
    }


_CALLS: dict[str, tuple[str, Callable[[], Json]]] = {
    "batch": ("/v1/batch", _batch_call),
    "txn": ("/v1/txn", _txn_call),
    "get-many": ("/v1/get-many", _get_many_call),
    "scan": ("/v1/scan", _scan_call),
    "snapshots": ("/v1/snapshots", _snapshots_call),
    "snapshot": ("/v1/snapshots/{id}", _snapshot_call),
}


@cache
def document(names: frozenset[str]) -> bytes:
    """The whole document, as JSON, for a port with the routes of these names."""
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
