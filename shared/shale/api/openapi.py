"""The description of the network interface, OpenAPI 3.1."""

from functools import cache
from typing import Any

from shale.service.build import version

_BASE64 = {"type": "string", "contentEncoding": "base64"}
_SEQ = {"schema": {"type": "integer"}, "description": "The sequence number of the commit."}
_CREATE_TS = {"schema": {"type": "integer"}, "description": "Commit time, milliseconds since 1970."}
_EXPIRE_TS = {"schema": {"type": "integer"}, "description": "When the row expires, milliseconds since 1970."}
_WRITTEN = {"X-Shale-Seq": _SEQ, "X-Shale-Create-Ts": _CREATE_TS}
_DURABILITY = {
    "name": "X-Shale-Durability",
    "in": "header",
    "schema": {"type": "string", "enum": ["durable", "memory"], "default": "durable"},
    "description": "durable: answer when the write is in the WAL; memory: when it is readable.",
}
_NAME = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    "description": "The batch's name: sent again, it gets the first answer and is not committed again.",
}
_TTL = {
    "name": "X-Shale-TTL-Ms",
    "in": "header",
    "schema": {"type": "integer", "minimum": 0},
    "description": "Lifetime of the row in milliseconds.",
}
_KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Any bytes, percent-encoded; a slash may stand as it is.",
}
_REASONS = {
    "400": "The request is invalid.",
    "401": "A bearer token is required.",
    "404": "There is no such key.",
    "408": "The body stopped coming.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor msgpack.",
    "421": "This process is not the writer any more.",
    "422": "The name belongs to another batch.",
    "429": "Too many requests at once; see Retry-After.",
    "503": "Back-pressure, an unreachable store or a stop; see Retry-After.",
}


def _problems(*statuses: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _REASONS[status], "content": {"application/problem+json": {"schema": schema}}}
        for status in (*statuses, "401", "421", "429", "503")
    }


def _body(schema: dict[str, Any], *media_types: str) -> dict[str, Any]:
    return {"required": True, "content": {each: {"schema": schema} for each in media_types}}


def _key_calls() -> dict[str, Any]:
    value = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    found = {"description": "The value.", "headers": {**_WRITTEN, "X-Shale-Expire-Ts": _EXPIRE_TS}, "content": value}
    done = {"description": "Written.", "headers": _WRITTEN}
    return {
        "parameters": [_KEY],
        "get": {
            "operationId": "get",
            "summary": "Read one row.",
            "responses": {"200": found, **_problems("400", "404")},
        },
        "put": {
            "operationId": "put",
            "summary": "Write one row.",
            "parameters": [_DURABILITY, _TTL],
            "requestBody": {"required": True, "content": value},
            "responses": {"204": done, **_problems("400", "408", "413")},
        },
        "delete": {
            "operationId": "delete",
            "summary": "Delete one row; a missing one is deleted as well.",
            "parameters": [_DURABILITY],
            "responses": {"204": done, **_problems("400")},
        },
    }


def _batch_call() -> dict[str, Any]:
    op = {
        "type": "array",
        "description": '["put", key, value], ["put", key, value, ttl_ms] or ["delete", key]',
        "minItems": 2,
        "maxItems": 4,
    }
    request = {
        "type": "object",
        "required": ["ops"],
        "properties": {"ops": {"type": "array", "minItems": 1, "items": op}},
        "additionalProperties": False,
    }
    answer = {
        "type": "object",
        "required": ["seq", "create_ts", "rows"],
        "properties": {name: {"type": "integer"} for name in ("seq", "create_ts", "rows")},
    }
    done = {"description": "Written.", "headers": _WRITTEN, "content": {"application/json": {"schema": answer}}}
    return {
        "post": {
            "operationId": "batch",
            "summary": "Many writes as one commit; keys and values are base64 in JSON, binary in msgpack.",
            "parameters": [_DURABILITY, _NAME],
            "requestBody": _body(request, "application/json", "application/msgpack"),
            "responses": {"200": done, **_problems("400", "408", "413", "415", "422")},
        }
    }


def _get_many_call() -> dict[str, Any]:
    request = {
        "type": "object",
        "required": ["keys"],
        "properties": {"keys": {"type": "array", "items": _BASE64}},
        "additionalProperties": False,
    }
    value = {"oneOf": [_BASE64, {"type": "null"}]}
    answer = {"type": "object", "required": ["values"], "properties": {"values": {"type": "array", "items": value}}}
    found = {"description": "Values in the order of the keys.", "content": {"application/json": {"schema": answer}}}
    return {
        "post": {
            "operationId": "getMany",
            "summary": "Many rows in one trip.",
            "requestBody": _body(request, "application/json", "application/msgpack"),
            "responses": {"200": found, **_problems("400", "408", "413", "415")},
        }
    }


def _scan_call() -> dict[str, Any]:
    request = {
        "type": "object",
        "properties": {
            "start": {**_BASE64, "description": "Inclusive."},
            "stop": {**_BASE64, "description": "Exclusive."},
            "prefix": _BASE64,
            "limit": {"type": "integer", "minimum": 0},
            "resume": {"type": "string", "description": "The token of an earlier answer."},
        },
        "additionalProperties": False,
    }
    line = {
        "type": "object",
        "description": "A row; the last line has end, rows and resume, or error.",
        "properties": {
            "key": _BASE64,
            "value": _BASE64,
            "seq": {"type": "integer"},
            "create_ts": {"type": "integer"},
            "expire_ts": {"type": "integer"},
            "end": {"type": "boolean"},
            "rows": {"type": "integer"},
            "resume": {"type": ["string", "null"]},
            "error": {"$ref": "#/components/schemas/Problem"},
        },
    }
    found = {"description": "One line per row.", "content": {"application/x-ndjson": {"schema": line}}}
    return {
        "post": {
            "operationId": "scan",
            "summary": "A range of rows in key order, streamed.",
            "requestBody": {"required": False, "content": {"application/json": {"schema": request}}},
            "responses": {"200": found, **_problems("400", "408", "413")},
        }
    }


_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "kind", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "kind": {"type": "string"},
        "retryable": {"type": "boolean"},
    },
}


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Shale writer",
            "version": version(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/kv/{key}": _key_calls(),
            "/v1/batch": _batch_call(),
            "/v1/get-many": _get_many_call(),
            "/v1/scan": _scan_call(),
        },
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }
