"""The named schemas of the data port's OpenAPI document.

Client generators make one class of each.  They do not accept ``false`` as a schema, so arrays have ``maxItems``.
"""

from shale.api.openapi_schemas import BASE64, INT, KEY64, PROBLEM, TTL, Json, named, table

_NUMBER: Json = {"type": "integer", "minimum": 0, "maximum": 1 << 53}
_LIFETIME: Json = {
    "ttl_ms": {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": 1 << 53},
            {"type": "string", "const": "never"},
            {"type": "null"},
        ],
        "description": "Lifetime in milliseconds, or never; null: the database's default.",
    },
    "expire_at": {
        "oneOf": [_NUMBER, {"type": "null"}],
        "description": "Expiry time in milliseconds since 1970; excludes ttl_ms.",
    },
}
_ARRAY_OPS: list[Json] = [
    {
        "type": "array",
        "title": "WriteArray",
        "description": "The same as PutOp or MergeOp, in fewer bytes; the fourth element is the lifetime.",
        "prefixItems": [{"type": "string", "enum": ["put", "merge"]}, KEY64, BASE64, TTL],
        "minItems": 3,
        "maxItems": 4,
    },
    {
        "type": "array",
        "title": "DeleteArray",
        "prefixItems": [{"type": "string", "const": "delete"}, KEY64],
        "minItems": 2,
        "maxItems": 2,
    },
]
_ARRAY_CHECKS: list[Json] = [
    {
        "type": "array",
        "title": "PresenceArray",
        "prefixItems": [{"type": "string", "enum": ["absent", "present"]}, KEY64],
        "minItems": 2,
        "maxItems": 2,
    },
    {
        "type": "array",
        "title": "ValueArray",
        "prefixItems": [{"type": "string", "const": "value"}, KEY64, BASE64],
        "minItems": 3,
        "maxItems": 3,
    },
    {
        "type": "array",
        "title": "SeqArray",
        "prefixItems": [{"type": "string", "const": "seq"}, KEY64, _NUMBER],
        "minItems": 3,
        "maxItems": 3,
    },
]
_OPS: Json = {
    "type": "array",
    "description": "Operations in the order in which they apply.",
    "items": {"oneOf": [*map(named, ("PutOp", "MergeOp", "DeleteOp")), *_ARRAY_OPS]},
}
_CHECKS: Json = {
    "type": "array",
    "description": "All must hold.",
    "items": {"oneOf": [*map(named, ("AbsentCheck", "PresentCheck", "ValueCheck", "SeqCheck")), *_ARRAY_CHECKS]},
}
_RANGE: Json = {
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
_ROW: Json = {"key": BASE64, "value": BASE64, "seq": INT, "create_ts": INT, "expire_ts": INT}
_RESUME: Json = {
    "type": ["string", "null"],
    "description": "Continues after the last row; null at the end of the range.",
}
_WRITER: Json = {
    "epoch": INT,
    "holder": {"type": ["string", "null"]},
    "host": {"type": ["string", "null"]},
    "since_s": {"type": ["integer", "null"]},
    "proved_s": {"type": "number"},
    "database": {"type": "string"},
}


def _kind(field: str, kind: str) -> Json:
    """Return the field that says which of several objects this is."""
    return {field: {"type": "string", "const": kind}}


def _fields(properties: Json, *required: str) -> Json:
    """Return the schema of an object of a response, to which later versions may add fields."""
    return {"type": "object", "required": [*required], "properties": properties}


COMPONENTS: Json = {
    "Problem": PROBLEM,
    "PutOp": table({**_kind("op", "put"), "key": KEY64, "value": BASE64, **_LIFETIME}, required=("op", "key", "value")),
    "MergeOp": table(
        {**_kind("op", "merge"), "key": KEY64, "value": {**BASE64, "description": "The operand."}, **_LIFETIME},
        required=("op", "key", "value"),
    ),
    "DeleteOp": table({**_kind("op", "delete"), "key": KEY64}, required=("op", "key")),
    "AbsentCheck": table({**_kind("check", "absent"), "key": KEY64}, required=("check", "key")),
    "PresentCheck": table({**_kind("check", "present"), "key": KEY64}, required=("check", "key")),
    "ValueCheck": table({**_kind("check", "value"), "key": KEY64, "value": BASE64}, required=("check", "key", "value")),
    "SeqCheck": table({**_kind("check", "seq"), "key": KEY64, "seq": _NUMBER}, required=("check", "key", "seq")),
    "BatchRequest": table({"ops": {**_OPS, "minItems": 1}}, required=("ops",)),
    "TxnRequest": table({"compare": _CHECKS, "ops": _OPS}),
    "Commit": _fields(dict.fromkeys(("seq", "create_ts", "rows"), INT), "seq", "rows"),
    "GetManyRequest": table({"keys": {"type": "array", "items": KEY64}}, required=("keys",)),
    "Values": _fields({"values": {"type": "array", "items": {"oneOf": [BASE64, {"type": "null"}]}}}, "values"),
    "ScanRequest": table(_RANGE),
    "Row": _fields(_ROW, "key", "value", "seq"),
    "Page": _fields({"rows": {"type": "array", "items": named("Row")}, "resume": _RESUME}, "rows", "resume"),
    "ScanLine": {
        "type": "object",
        "description": "A row; the last line has either end, rows and resume, or error.",
        "properties": {
            **_ROW,
            "end": {"type": "boolean"},
            "rows": INT,
            "resume": {"type": ["string", "null"]},
            "error": named("Problem"),
        },
    },
    "SnapshotRequest": table(
        {
            "lifetime_ms": {
                "type": "integer",
                "minimum": 1,
                "description": "Lifetime of the lease; by default the maximum.",
            }
        }
    ),
    "Snapshot": _fields({"id": {"type": "string"}, "seq": INT, "expires_ms": INT}, "id", "seq", "expires_ms"),
    "Writer": _fields(_WRITER, *_WRITER),
}
