"""What the descriptions of several calls share: schemas, headers, problems."""

from typing import Any

Json = dict[str, Any]

JSON = "application/json"
MSGPACK = "application/msgpack"
PROBLEM_TYPE = "application/problem+json"

BASE64: Json = {"type": "string", "contentEncoding": "base64"}
KEY64: Json = {**BASE64, "minLength": 4, "description": "Not empty; in msgpack binary."}
INT: Json = {"type": "integer"}
TTL: Json = {
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": 1 << 53},
        {"const": "never"},
        {
            "type": "object",
            "properties": {"expire_at": {"type": "integer", "minimum": 0, "maximum": 1 << 53}},
            "required": ["expire_at"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ],
    "description": "Milliseconds from the commit on, never, or when; null: the database's default.",
}
DURABILITY_WRITE = {
    "name": "X-Shale-Durability",
    "in": "header",
    "schema": {"type": "string", "enum": ["durable", "memory"], "default": "durable"},
    "description": "durable: answer when the write is in the WAL; memory: when it is readable.",
}
DURABILITY_READ = {
    "name": "X-Shale-Durability",
    "in": "header",
    "schema": {"type": "string", "enum": ["durable", "memory"], "default": "memory"},
    "description": "durable: only what a crash cannot undo.",
}
NAME = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    "description": "The write's name: sent again, it gets the first answer and is not committed again.",
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
        "description": "When the row expires, milliseconds since 1970; not together with X-Shale-TTL-Ms.",
    },
]
KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
    "description": "Any bytes, percent-encoded; a slash may stand as it is.",
}
SNAPSHOT = {
    "name": "snapshot",
    "in": "query",
    "schema": {"type": "string"},
    "description": "Read this snapshot.",
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
    "401": "A bearer token is required.",
    "404": "There is no such key.",
    "406": "None of the formats is acceptable.",
    "408": "The body stopped coming.",
    "409": "Somebody wrote the same again and again; try again.",
    "410": "The snapshot's lease is over, or the state to resume in is gone.",
    "412": "What was expected does not hold; nothing was written.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor msgpack.",
    "421": "This process is not the writer any more.",
    "422": "The name belongs to another write.",
    "429": "Too many requests or snapshots at once; see Retry-After.",
    "500": "Stored bytes are damaged, or the server is at fault.",
    "503": "Back-pressure, an unreachable store or a stop; see Retry-After.",
}
_EVERYWHERE = ("401", "421", "429", "500", "503")


def problems(*statuses: str) -> Json:
    """Answers that are problem documents; those that every call can give come with them."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _REASONS[status], "content": content} for status in (*statuses, *_EVERYWHERE)}


def table(properties: Json, *, required: tuple[str, ...] = ()) -> Json:
    """A JSON object that has no other names."""
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def body(schema: Json, *media_types: str, required: bool = True) -> Json:
    """A request body; in msgpack the same with binary keys and values, which no JSON schema can say."""
    return {
        "required": required,
        "content": {each: {"schema": schema if each == JSON else {}} for each in media_types},
    }


def answer(description: str, schema: Json, headers: Json | None = None) -> Json:
    """An answer in the format of the request."""
    found: Json = {"description": description, "content": {JSON: {"schema": schema}, MSGPACK: {"schema": {}}}}
    return {**found, "headers": headers} if headers else found
