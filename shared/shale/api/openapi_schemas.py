"""OpenAPI parts shared by several routes: schemas, headers, problem responses."""

from typing import Any

Json = dict[str, Any]

JSON = "application/json"
MSGPACK = "application/msgpack"
PROBLEM_TYPE = "application/problem+json"

_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
BASE64: Json = {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
KEY64: Json = {**BASE64, "minLength": 4, "description": "Not empty; in msgpack binary."}
INT: Json = {"type": "integer"}
TTL: Json = {
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": 1 << 53},
        {"type": "string", "const": "never"},
        {
            "type": "object",
            "properties": {"expire_at": {"type": "integer", "minimum": 0, "maximum": 1 << 53}},
            "required": ["expire_at"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ],
    "description": "Milliseconds from the commit, never, or an expiry time; null: the database's default.",
}
DURABILITY_WRITE = {
    "name": "X-Shale-Durability",
    "in": "header",
    "schema": {"type": "string", "enum": ["durable", "memory"], "default": "durable"},
    "description": "durable: respond when the write is in the WAL; memory: when it is readable.",
}
DURABILITY_READ = {
    "name": "X-Shale-Durability",
    "in": "header",
    "schema": {"type": "string", "enum": ["durable", "memory"], "default": "memory"},
    "description": "durable: read only durable rows.",
}
NAME = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    "description": "Makes a retry idempotent: it gets the first response and is not committed again.",
}
LIFE = [
    {
        "name": "X-Shale-TTL-Ms",
        "in": "header",
        "schema": {"type": "string", "pattern": "^([0-9]{1,15}|never)$"},
        "description": "Lifetime of the row in milliseconds, or never.",
    },
    {
        "name": "X-Shale-Expire-At",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "description": "Expiry time in milliseconds since 1970; excludes X-Shale-TTL-Ms.",
    },
]
KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
    "description": "Any bytes, percent-encoded; slashes need no encoding.",
}
SNAPSHOT = {
    "name": "snapshot",
    "in": "query",
    "schema": {"type": "string"},
    "description": "The id of the snapshot to read.",
}
SEQ: Json = {"schema": INT, "description": "The sequence number of the commit."}
CREATE_TS: Json = {"schema": INT, "description": "Commit time, milliseconds since 1970."}
EXPIRE_TS: Json = {"schema": INT, "description": "When the row expires, milliseconds since 1970."}
WRITTEN = {"X-Shale-Seq": SEQ, "X-Shale-Create-Ts": CREATE_TS}
VALUE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "kind", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": INT,
        "detail": {"type": "string"},
        "kind": {"type": "string"},
        "retryable": {"type": "boolean"},
        "failed": {"type": "array", "items": INT, "description": "Of a transaction: which compares do not hold."},
    },
}

_REASONS = {
    "400": "The request is invalid.",
    "401": "A bearer token is required, or the given one is unknown.",
    "403": "The role of the token does not allow this call.",
    "404": "There is no such key.",
    "406": "None of the formats is acceptable.",
    "408": "The body did not arrive in time.",
    "409": "Conflicts with concurrent writes persisted; retry.",
    "410": "The snapshot has expired, or the state to resume in is gone.",
    "412": "A comparison does not hold; nothing was written.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor msgpack.",
    "421": "This process is not the writer any more.",
    "422": "The idempotency key belongs to another write.",
    "429": "Too many requests or snapshots at once, or over the quota of the token; see Retry-After.",
    "500": "Stored data is corrupt, or an internal error occurred.",
    "503": "Backpressure, an unreachable store or a shutdown; see Retry-After.",
}
_EVERYWHERE = ("401", "403", "421", "429", "500", "503")


def named(name: str) -> Json:
    """Return a reference to a schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def problems(*statuses: str) -> Json:
    """Return problem responses: these statuses and the ones that every route can return."""
    content = {PROBLEM_TYPE: {"schema": named("Problem")}}
    return {status: {"description": _REASONS[status], "content": content} for status in (*statuses, *_EVERYWHERE)}


def table(properties: Json, *, required: tuple[str, ...] = ()) -> Json:
    """Return the schema of an object without further properties."""
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def body(schema: Json, *media_types: str, required: bool = True) -> Json:
    """Return a request body; msgpack has binary keys and values, which JSON Schema cannot describe."""
    return {
        "required": required,
        "content": {each: {"schema": schema if each == JSON else {}} for each in media_types},
    }


def answer(description: str, schema: Json, headers: Json | None = None) -> Json:
    """Return a response in the format of the request."""
    found: Json = {"description": description, "content": {JSON: {"schema": schema}, MSGPACK: {"schema": {}}}}
    return {**found, "headers": headers} if headers else found
