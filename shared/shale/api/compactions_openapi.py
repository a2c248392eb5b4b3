"""The OpenAPI paths of compactions on a compactor's admin port (docs/how-to/compact-manually.md)."""

from shale.api.openapi_schemas import INT, JSON, Json, named, problems, table

TEXT: Json = {"type": "string"}
_BYTES: Json = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}


def _or_none(schema: Json) -> Json:
    return {"oneOf": [schema, {"type": "null"}]}


def _list_of(schema: Json) -> Json:
    return {"type": "array", "items": schema}


def _object(fields: Json) -> Json:
    """Return the schema of an object that always has these fields, and may get others."""
    return {"type": "object", "required": list(fields), "properties": fields}


def _time(name: str) -> Json:
    return {name: _or_none({"type": "string", "format": "date-time"}), f"{name}_ms": _or_none(INT)}


_PROGRESS = _object(
    {
        **dict.fromkeys(("input_ssts_processed", "total_input_ssts", "output_ssts_written", "output_bytes"), INT),
        **dict.fromkeys(("bytes_processed", "total_bytes"), INT),
        "completion_percentage": _or_none({"type": "number"}),
        **_time("estimated_completion"),
    }
)
_WORKER = _object({"id": TEXT, **_time("last_heartbeat"), "heartbeat_age_ms": _or_none(INT)})
_COMPACTION = _object(
    {
        "id": TEXT,
        "status": TEXT,
        "phase": TEXT,
        "spec": {**TEXT, "description": "Sources and destination, for people."},
        "segment_b64": {**TEXT, "description": "Prefix of the segment, Base64; empty: the root tree."},
        "source_ssts": _list_of(TEXT),
        "source_srs": _list_of(INT),
        "target": {**_or_none(INT), "description": "Id of the new sorted run; null for a drain."},
        "request": named("CompactionRequest"),
        "progress": named("CompactionProgress"),
        "outputs": _list_of(named("CompactionOutput")),
        **_time("created_at"),
        **_time("started_at"),
        **_time("completed_at"),
        "attempts": INT,
        "kind": _or_none(TEXT),
        "retry_of": _or_none(TEXT),
        "worker": _or_none(named("CompactionWorker")),
        "error_message": _or_none(TEXT),
    }
)
_ULID: Json = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
_RUN: Json = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_SOURCES = _list_of({"oneOf": [named("SortedRunSource"), named("SstViewSource")]})
# Generators name the classes of nested objects themselves, and not always uniquely: each has a name here.
_REQUESTS: Json = {
    "CompactionRequest": {
        "oneOf": [named("CompactAll"), named("CompactSegment"), named("CompactSources")],
        "description": "All runs of every tree, all runs of one segment, or exactly these sources.",
    },
    "CompactAll": table({"Full": named("CompactAllOptions")}, required=("Full",)),
    "CompactAllOptions": table({}),
    "CompactSegment": table({"FullSegment": named("SegmentName")}, required=("FullSegment",)),
    "SegmentName": table({"segment": _BYTES}, required=("segment",)),
    "CompactSources": table(
        {"Spec": {"oneOf": [named("TieredRequest"), named("DrainRequest"), named("MergedSources")]}}, required=("Spec",)
    ),
    "TieredRequest": table({"Tiered": named("MergedSources")}, required=("Tiered",)),
    "DrainRequest": table({"DrainSegment": named("DrainedSources")}, required=("DrainSegment",)),
    "MergedSources": table(
        {"segment": _BYTES, "sources": _SOURCES, "destination": _or_none(_RUN)}, required=("sources",)
    ),
    "DrainedSources": table({"segment": _BYTES, "sources": _SOURCES}, required=("sources",)),
    "SortedRunSource": table({"SortedRun": _RUN}, required=("SortedRun",)),
    "SstViewSource": table({"SstView": _ULID}, required=("SstView",)),
}
SCHEMAS: Json = {
    **_REQUESTS,
    "Compaction": _COMPACTION,
    "CompactionOutput": _object({"id": TEXT, "bytes": INT}),
    "CompactionProgress": _PROGRESS,
    "CompactionWorker": _WORKER,
    "Compactions": _object({"schema_version": INT, "compactions": _list_of(named("Compaction"))}),
    "OneCompaction": _object({"schema_version": INT, **_COMPACTION["properties"]}),
}
"""The named schemas of the paths."""


def _answered(description: str, schema: str) -> Json:
    return {"description": description, "content": {JSON: {"schema": named(schema)}}}


_OWN_REASONS = {
    "404": "There is no such compaction.",
    "409": "Another compaction conflicts, or it is too late; waiting may help.",
    "422": "The request breaks a rule of compactions, which `rule` names.",
}


def _problems(*statuses: str) -> Json:
    """Return problem responses with the reasons of compactions."""
    found = problems(*statuses)
    own = {status: {**found[status], "description": text} for status, text in _OWN_REASONS.items() if status in found}
    return {**found, **own}


def _flag(name: str, description: str) -> Json:
    return {"name": name, "in": "query", "schema": {"type": "boolean"}, "description": description}


_ID: Json = {"name": "compaction_id", "in": "path", "required": True, "schema": _ULID, "description": "Id: a ULID."}
_PATH = "/v1/admin/compactions"
_BODY_PROBLEMS = ("400", "404", "408", "409", "413", "415", "422")

COMPACTIONS: Json = {
    _PATH: {
        "get": {
            "operationId": "listCompactions",
            "summary": "List active compactions, and finished ones.",
            "parameters": [_flag("all", "Also those of which only a record is left.")],
            "responses": {"200": _answered("The newest last.", "Compactions"), **_problems("400")},
        },
        "post": {
            "operationId": "submitCompaction",
            "summary": "Submit compactions; the coordinator schedules them.",
            "parameters": [_flag("dry_run", "Check only, and submit nothing.")],
            "requestBody": {"required": True, "content": {JSON: {"schema": named("CompactionRequest")}}},
            "responses": {
                "200": _answered("What a dry run would submit, or nothing to do.", "Compactions"),
                "202": _answered("They are submitted.", "Compactions"),
                **_problems(*_BODY_PROBLEMS),
            },
        },
    },
    f"{_PATH}/{{compaction_id}}": {
        "parameters": [_ID],
        "get": {
            "operationId": "getCompaction",
            "summary": "Get one compaction.",
            "responses": {"200": _answered("The compaction.", "OneCompaction"), **_problems("400", "404")},
        },
    },
    f"{_PATH}/{{compaction_id}}/cancel": {
        "parameters": [_ID],
        "post": {
            "operationId": "cancelCompaction",
            "summary": "Cancel a compaction that is not finished.",
            "responses": {"200": _answered("The compaction.", "OneCompaction"), **_problems("400", "404", "409")},
        },
    },
    f"{_PATH}/{{compaction_id}}/retry": {
        "parameters": [_ID],
        "post": {
            "operationId": "retryCompaction",
            "summary": "Submit a failed compaction again, with a new id.",
            "responses": {
                "202": _answered("The new compaction.", "Compactions"),
                **_problems("400", "404", "409", "422"),
            },
        },
    },
}
"""The paths of a compactor's admin port, for ``openapi_route``."""
