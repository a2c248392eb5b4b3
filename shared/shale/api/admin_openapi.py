"""The OpenAPI 3.1 document of an admin port: the routes below ``/v1/admin/`` that a process serves."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.api.openapi_schemas import INT, JSON, PROBLEM, Json, problems, table
from shale.gc.options import Task
from shale.service.build import version
from shale.service.http.server_url import server_url

TEXT: Json = {"type": "string"}
UUID: Json = {"type": "string", "format": "uuid"}
_LIFETIME: Json = {
    "oneOf": [{"type": "string"}, {"type": "number", "exclusiveMinimum": 0}, {"type": "null"}],
    "description": "Counted from now: text such as 7days 30min, or seconds; null: no expiry.",
}
_OR_NONE = {"oneOf": [TEXT, {"type": "null"}]}
_MS = {"oneOf": [INT, {"type": "null"}]}
_CHECKPOINT_FIELDS: Json = {
    "id": UUID,
    "manifest_id": INT,
    "name": _OR_NONE,
    "create_time": _OR_NONE,
    "create_ms": _MS,
    "expire_time": _OR_NONE,
    "expire_ms": _MS,
    "state": {"enum": ["active", "expired", "no_expiry"]},
}
_LEVELS = {"enum": ["debug", "info", "warning", "error", "critical"]}
_LEVEL: Json = {"type": "object", "required": ["level"], "properties": {"level": _LEVELS}}
_ID = {
    "name": "checkpoint_id",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "Id or name of the checkpoint.",
}


def _given(schema: Json, *, required: bool) -> Json:
    return {"required": required, "content": {JSON: {"schema": schema}}}


def _answered(description: str, schema: Json) -> Json:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _checkpoint(description: str) -> Json:
    fields = {"schema_version": INT, **_CHECKPOINT_FIELDS}
    return _answered(description, {"type": "object", "required": list(fields), "properties": fields})


LOG_LEVEL: Json = {
    "/v1/admin/log-level": {
        "get": {
            "operationId": "getLogLevel",
            "summary": "Get the log level of this process.",
            "responses": {"200": _answered("The level.", _LEVEL), **problems()},
        },
        "put": {
            "operationId": "setLogLevel",
            "summary": "Set the log level of this process until it ends.",
            "requestBody": _given({"oneOf": [_LEVEL, _LEVELS]}, required=True),
            "responses": {"200": _answered("The level.", _LEVEL), **problems("400", "408", "413")},
        },
    }
}
FLUSH: Json = {
    "/v1/admin/flush": {
        "post": {
            "operationId": "flush",
            "summary": "Make all writes accepted so far durable.",
            "responses": {"204": {"description": "They are durable."}, **problems()},
        }
    }
}
_PROMOTED: Json = {
    "type": "object",
    "required": ["schema_version", "state", "epoch", "promoted"],
    "properties": {
        "schema_version": INT,
        "state": {"enum": ["active"]},
        "epoch": INT,
        "promoted": {"type": "boolean", "description": "false: it was the writer already."},
    },
}
PROMOTE: Json = {
    "/v1/admin/promote": {
        "post": {
            "operationId": "promote",
            "summary": "Make this standby the writer now; an active writer is fenced.",
            "responses": {"200": _answered("It is the writer.", _PROMOTED), **problems("400", "409")},
        }
    }
}
_DATABASE: Json = {"oneOf": [TEXT, {"type": "null"}], "description": "Path of one database; default: all databases."}
_RESOURCES: Json = {
    "oneOf": [{"type": "array", "items": {"enum": [task.value for task in Task]}}, {"type": "null"}],
    "description": "Default: all tasks.",
}
_TASK: Json = {
    "type": "object",
    "properties": {
        "running": {"type": "boolean"},
        "last_success_ms": _MS,
        "last_error": _OR_NONE,
        **dict.fromkeys(("listed", "planned", "deleted", "deleted_bytes", "failed"), INT),
    },
}
_COLLECTED: Json = {
    "type": "object",
    "required": ["schema_version", "databases", "waiting"],
    "properties": {
        "schema_version": INT,
        "waiting": {"type": "object", "additionalProperties": TEXT},
        "databases": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["database", "tasks"],
                "properties": {"database": TEXT, "tasks": {"type": "object", "additionalProperties": _TASK}},
            },
        },
    },
}
GC: Json = {
    "/v1/admin/gc": {
        "get": {
            "operationId": "gcStatus",
            "summary": "Get the status of all tasks.",
            "responses": {"200": _answered("By database and task.", _COLLECTED), **problems("400")},
        },
        "post": {
            "operationId": "startGc",
            "summary": "Start passes now.",
            "requestBody": _given(table({"database": _DATABASE, "resources": _RESOURCES}), required=False),
            "responses": {
                "202": _answered("The passes are starting.", _COLLECTED),
                **problems("400", "404", "408", "413", "415"),
            },
        },
    },
    "/v1/admin/gc/plan": {
        "post": {
            "operationId": "planGc",
            "summary": "Plan one pass: list what it would delete, write nothing.",
            "requestBody": _given(
                table(
                    {
                        "database": {
                            **_DATABASE,
                            "description": "Path; required if the process has several databases.",
                        },
                        "resources": _RESOURCES,
                        "min_age": {"oneOf": [TEXT, {"type": "number", "minimum": 0}, {"type": "null"}]},
                    }
                ),
                required=False,
            ),
            "responses": {
                "200": _answered("The plan (docs/how-to/gc.md).", {"type": "object"}),
                **problems("400", "404", "408", "409", "413", "415"),
            },
        }
    },
}


def checkpoint_paths(*, with_scope: bool) -> Json:
    """Return the OpenAPI paths of ``CheckpointRoutes``; only a writer has a scope."""
    wanted: Json = {
        "lifetime": _LIFETIME,
        "name": {**_OR_NONE, "description": "A label; need not be unique."},
        "source": {**_OR_NONE, "description": "Id or name of an existing checkpoint whose state to keep."},
        "id": {"oneOf": [UUID, {"type": "null"}], "description": "Id of the new checkpoint; makes retries idempotent."},
    }
    if with_scope:
        wanted["scope"] = {
            "enum": ["all", "durable", None],
            "description": "all (the default): all writes so far, flushed first; durable: only durable writes.",
        }
    listed = {
        "type": "object",
        "required": ["schema_version", "checkpoints"],
        "properties": {
            "schema_version": INT,
            "checkpoints": {"type": "array", "items": {"type": "object", "properties": _CHECKPOINT_FIELDS}},
        },
    }
    return {
        "/v1/admin/checkpoints": {
            "get": {
                "operationId": "listCheckpoints",
                "summary": "List all checkpoints, or those with a name.",
                "parameters": [
                    {"name": "name", "in": "query", "schema": TEXT, "description": "Empty: checkpoints without a name."}
                ],
                "responses": {"200": _answered("In order of creation.", listed), **problems("400")},
            },
            "post": {
                "operationId": "createCheckpoint",
                "summary": "Create a checkpoint.",
                "requestBody": _given(table(wanted), required=False),
                "responses": {
                    "201": {
                        **_checkpoint("The new checkpoint."),
                        "headers": {"Location": {"schema": TEXT, "description": "Path of the new checkpoint."}},
                    },
                    **problems("400", "404", "408", "409", "413", "415"),
                },
            },
        },
        "/v1/admin/checkpoints/{checkpoint_id}": {
            "parameters": [_ID],
            "get": {
                "operationId": "getCheckpoint",
                "summary": "Get one checkpoint.",
                "responses": {"200": _checkpoint("The checkpoint."), **problems("400", "404")},
            },
            "patch": {
                "operationId": "refreshCheckpoint",
                "summary": "Set the lifetime of a checkpoint, counted from now.",
                "requestBody": _given(table({"lifetime": _LIFETIME}, required=("lifetime",)), required=True),
                "responses": {
                    "200": _checkpoint("The checkpoint with its new expiry."),
                    **problems("400", "404", "408", "413", "415"),
                },
            },
            "delete": {
                "operationId": "deleteCheckpoint",
                "summary": "Delete a checkpoint.",
                "responses": {
                    "204": {"description": "The checkpoint does not exist any more."},
                    **problems("400", "404"),
                },
            },
        },
    }


def openapi_route(*paths: Json, schemas: Json | None = None) -> Route:
    """Return the route ``/openapi.json`` of a process with these paths and the log level.

    Args:
        paths: calls by path.
        schemas: the named schemas that they use, besides ``Problem``.
    """
    described: Json = dict(LOG_LEVEL)
    for each in paths:
        described |= each
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Shale, admin port", "version": version()},
        "tags": [{"name": "admin", "description": "Administration of one process."}],
        "paths": {path: {method: _tagged(call) for method, call in calls.items()} for path, calls in described.items()},
        "components": {
            "schemas": {"Problem": PROBLEM, **(schemas or {})},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }

    async def describe(request: Request) -> Response:
        return Response(
            orjson.dumps({**document, "servers": [{"url": server_url(request.scope)}]}), media_type="application/json"
        )

    return Route("/openapi.json", describe)


def _tagged(call: Any) -> Any:
    """Add the tag of this port to a call; the parameters of a path are a list and stay as they are."""
    return {"tags": ["admin"], **call} if isinstance(call, dict) else call
