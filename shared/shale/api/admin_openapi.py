"""The description of an admin port, OpenAPI 3.1: of the calls below ``/v1/admin/`` that a process has."""

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.api.openapi_parts import INT, JSON, PROBLEM, Json, problems, table
from shale.service.build import version

TEXT: Json = {"type": "string"}
UUID: Json = {"type": "string", "format": "uuid"}
_LIFETIME: Json = {
    "oneOf": [{"type": "string"}, {"type": "number", "exclusiveMinimum": 0}, {"type": "null"}],
    "description": "From now on: text such as 7days 30min, or seconds; null is until it is deleted.",
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
_ID = {"name": "checkpoint_id", "in": "path", "required": True, "schema": TEXT, "description": "Its id, or its name."}


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
            "summary": "The log level of this process.",
            "responses": {"200": _answered("The level.", _LEVEL), **problems()},
        },
        "put": {
            "operationId": "setLogLevel",
            "summary": "Change it until the process ends.",
            "requestBody": _given({"oneOf": [_LEVEL, _LEVELS]}, required=True),
            "responses": {"200": _answered("The level.", _LEVEL), "400": {"description": "No such level."}},
        },
    }
}
FLUSH: Json = {
    "/v1/admin/flush": {
        "post": {
            "operationId": "flush",
            "summary": "Make everything that is written now durable.",
            "responses": {"204": {"description": "It is."}, **problems()},
        }
    }
}
_DATABASE: Json = {"oneOf": [TEXT, {"type": "null"}], "description": "Path of one; default: all."}
_RESOURCES: Json = {"oneOf": [{"type": "array", "items": TEXT}, {"type": "null"}], "description": "Default: all tasks."}
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
            "summary": "How every task is doing.",
            "responses": {"200": _answered("By database and task.", _COLLECTED), **problems("400")},
        },
        "post": {
            "operationId": "startGc",
            "summary": "Begin passes now.",
            "requestBody": _given(table({"database": _DATABASE, "resources": _RESOURCES}), required=False),
            "responses": {
                "202": _answered("They begin.", _COLLECTED),
                **problems("400", "404", "408", "413", "415"),
            },
        },
    },
    "/v1/admin/gc/plan": {
        "post": {
            "operationId": "planGc",
            "summary": "What one pass would delete; nothing is written.",
            "requestBody": _given(
                table(
                    {
                        "database": {**_DATABASE, "description": "Path; needed where there are several."},
                        "resources": _RESOURCES,
                        "min_age": {"oneOf": [TEXT, {"type": "number", "minimum": 0}, {"type": "null"}]},
                    }
                ),
                required=False,
            ),
            "responses": {
                "200": _answered("The plan (docs/garbage.md).", {"type": "object"}),
                **problems("400", "404", "408", "409", "413", "415"),
            },
        }
    },
}


def checkpoint_paths(*, with_scope: bool) -> Json:
    """The calls of ``CheckpointCalls``; only a writer has a scope."""
    wanted: Json = {
        "lifetime": _LIFETIME,
        "name": {**_OR_NONE, "description": "For people; need not be unique."},
        "source": {**_OR_NONE, "description": "Keep what this checkpoint, named by its id or name, keeps."},
        "id": {"oneOf": [UUID, {"type": "null"}], "description": "Of the new one; sent again, nothing is made twice."},
    }
    if with_scope:
        wanted["scope"] = {
            "enum": ["all", "durable", None],
            "description": "all (the default): what is written now, flushed for it; durable: what is durable, at once.",
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
                "summary": "All checkpoints, or those of a name.",
                "parameters": [
                    {"name": "name", "in": "query", "schema": TEXT, "description": "Empty: those without a name."}
                ],
                "responses": {"200": _answered("In the order in which they were made.", listed), **problems("400")},
            },
            "post": {
                "operationId": "createCheckpoint",
                "summary": "Keep a state of the database.",
                "requestBody": _given(table(wanted), required=False),
                "responses": {
                    "201": {
                        **_checkpoint("It is kept."),
                        "headers": {"Location": {"schema": TEXT, "description": "Where it is."}},
                    },
                    **problems("400", "404", "408", "409", "413", "415"),
                },
            },
        },
        "/v1/admin/checkpoints/{checkpoint_id}": {
            "parameters": [_ID],
            "get": {
                "operationId": "getCheckpoint",
                "summary": "One checkpoint.",
                "responses": {"200": _checkpoint("It."), **problems("400", "404")},
            },
            "patch": {
                "operationId": "refreshCheckpoint",
                "summary": "Let it live for so long from now on.",
                "requestBody": _given(table({"lifetime": _LIFETIME}, required=("lifetime",)), required=True),
                "responses": {
                    "200": _checkpoint("With its new end."),
                    **problems("400", "404", "408", "413", "415"),
                },
            },
            "delete": {
                "operationId": "deleteCheckpoint",
                "summary": "Let go of a state.",
                "responses": {"204": {"description": "It is not there any more."}, **problems("400", "404")},
            },
        },
    }


def description_route(*paths: Json) -> Route:
    """``/openapi.json`` of a process that has these calls besides the log level."""
    described: Json = dict(LOG_LEVEL)
    for each in paths:
        described |= each
    document = orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Shale, admin port", "version": version()},
            "paths": described,
            "components": {
                "schemas": {"Problem": PROBLEM},
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"bearer": []}],
        }
    )

    async def describe(request: Request) -> Response:  # noqa: ARG001 - the signature of a route
        return Response(document, media_type="application/json")

    return Route("/openapi.json", describe)
