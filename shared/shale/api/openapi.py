"""The OpenAPI 3.1 document of a data port: the routes that it serves."""

from collections.abc import Callable
from functools import lru_cache

import orjson

from shale.api.openapi_components import COMPONENTS
from shale.api.openapi_schemas import (
    DURABILITY_READ,
    DURABILITY_WRITE,
    EXPIRE_TS,
    INT,
    JSON,
    KEY,
    LIFE,
    MSGPACK,
    NAME,
    SNAPSHOT,
    VALUE,
    WRITTEN,
    Json,
    answer,
    body,
    named,
    problems,
)
from shale.service.build import version

_COMMIT = answer("Written.", named("Commit"), WRITTEN)
_TAGS: list[Json] = [
    {"name": "rows", "description": "Read and write rows."},
    {"name": "snapshots", "description": "One state of the database for several reads."},
    {"name": "writer", "description": "The process that writes to the database."},
]


def _call(tag: str, name: str, summary: str, responses: Json, **parts: object) -> Json:
    """Return one operation; generators name a method after its id and a module after its tag."""
    return {"tags": [tag], "operationId": name, "summary": summary, **parts, "responses": responses}


def _key_calls(names: frozenset[str]) -> Json:
    headers = {**WRITTEN, "X-Shale-Expire-Ts": EXPIRE_TS}
    value = {"description": "The value.", "headers": headers, "content": VALUE}
    exists = {"description": "The row exists.", "headers": headers}
    source = [SNAPSHOT, DURABILITY_READ]
    refused = problems("400", "404", "410")
    found: Json = {
        "parameters": [KEY],
        "get": _call("rows", "getRow", "Read one row.", {"200": value, **refused}, parameters=source),
        "head": _call(
            "rows",
            "headRow",
            "Check whether a row exists; its metadata is in the headers.",
            {"200": exists, **refused},
            parameters=source,
        ),
    }
    if "batch" not in names:
        return found
    done = {"description": "Written.", "headers": WRITTEN}
    for method, name, summary in (
        ("put", "putRow", "Write one row; the body is the value."),
        ("patch", "mergeRow", "Add a merge operand; the body is the operand."),
    ):
        found[method] = _call(
            "rows",
            name,
            summary,
            {"204": done, **problems("400", "408", "413", "415", "422")},
            parameters=[DURABILITY_WRITE, NAME, *LIFE],
            requestBody={"required": True, "content": VALUE},
        )
    found["delete"] = _call(
        "rows",
        "deleteRow",
        "Delete one row; succeeds also if it does not exist.",
        {"204": done, **problems("400", "422")},
        parameters=[DURABILITY_WRITE, NAME],
    )
    return found


def _post(name: str, summary: str, parameters: list[Json], request: str, responses: Json) -> Json:
    """Return a call by POST whose body is a named schema."""
    given = body(named(request), JSON, MSGPACK, required=request != "ScanRequest")
    return {"post": _call("rows", name, summary, responses, parameters=parameters, requestBody=given)}


def _batch_call() -> Json:
    return _post(
        "writeBatch",
        "Apply many writes in one commit; keys and values are base64 in JSON, binary in msgpack.",
        [DURABILITY_WRITE, NAME],
        "BatchRequest",
        {"200": _COMMIT, **problems("400", "408", "413", "415", "422")},
    )


def _txn_call() -> Json:
    return _post(
        "commitTxn",
        "Apply writes atomically if every comparison holds.",
        [DURABILITY_WRITE, NAME],
        "TxnRequest",
        {"200": _COMMIT, **problems("400", "408", "409", "412", "413", "415", "422")},
    )


def _get_many_call() -> Json:
    return _post(
        "getMany",
        "Read many rows in one request.",
        [SNAPSHOT, DURABILITY_READ],
        "GetManyRequest",
        {
            "200": answer("Values in the order of the keys.", named("Values")),
            **problems("400", "408", "410", "413", "415"),
        },
    )


def _scan_headers() -> Json:
    return {
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


def _scan_call() -> Json:
    content = {
        "application/x-ndjson": {"schema": named("ScanLine")},
        MSGPACK: {"schema": {}},
        "application/vnd.apache.arrow.stream": {"schema": {}},
    }
    return _post(
        "scan",
        "Scan a range of rows in key order, streamed in the format of the Accept header.",
        [SNAPSHOT, DURABILITY_READ],
        "ScanRequest",
        {
            "200": {"description": "One line per row.", "headers": _scan_headers(), "content": content},
            **problems("400", "406", "408", "410", "413", "415"),
        },
    )


def _scan_page_call() -> Json:
    return _post(
        "scanPage",
        "Read one page of a range as one document; resume continues it.",
        [SNAPSHOT, DURABILITY_READ],
        "ScanRequest",
        {
            "200": answer("At most limit rows, by default 1000.", named("Page"), _scan_headers()),
            **problems("400", "408", "410", "413", "415"),
        },
    )


_LEASE_BODY = body(named("SnapshotRequest"), JSON, MSGPACK, required=False)


def _snapshots_call() -> Json:
    return {
        "post": _call(
            "snapshots",
            "openSnapshot",
            "Open a snapshot of the current state with a lease.",
            {
                "201": answer("The snapshot.", named("Snapshot"), {"Location": {"schema": {"type": "string"}}}),
                **problems("400", "408", "413", "415"),
            },
            parameters=[DURABILITY_READ],
            requestBody=_LEASE_BODY,
        )
    }


def _snapshot_call() -> Json:
    identity = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return {
        "parameters": [identity],
        "put": _call(
            "snapshots",
            "renewSnapshot",
            "Renew the lease, counted from now.",
            {
                "200": answer("The snapshot.", named("Snapshot")),
                **problems("400", "408", "410", "413", "415"),
            },
            requestBody=_LEASE_BODY,
        ),
        "delete": _call(
            "snapshots",
            "closeSnapshot",
            "Close a snapshot; succeeds also if it has expired.",
            {"204": {"description": "The snapshot is closed."}, **problems("400")},
        ),
    }


def _writer_call() -> Json:
    return {
        "get": _call(
            "writer",
            "getWriter",
            "Tell which writer answers: its epoch, and what its sign of life tells.",
            {"200": answer("The writer.", named("Writer")), **problems("400")},
        )
    }


_CALLS: dict[str, tuple[str, Callable[[], Json]]] = {
    "batch": ("/v1/batch", _batch_call),
    "txn": ("/v1/txn", _txn_call),
    "get-many": ("/v1/get-many", _get_many_call),
    "scan": ("/v1/scan", _scan_call),
    "scan-page": ("/v1/scan-page", _scan_page_call),
    "snapshots": ("/v1/snapshots", _snapshots_call),
    "snapshot": ("/v1/snapshots/{id}", _snapshot_call),
    "writer": ("/v1/writer", _writer_call),
}


@lru_cache(maxsize=16)
def document(names: frozenset[str], server: str) -> bytes:
    """Return the document as JSON for a port with the routes of these names.

    Args:
        names: the routes of the port.
        server: the URL under which the client reached the port.
    """
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
            "servers": [{"url": server}],
            "tags": _TAGS,
            "paths": paths,
            "components": {
                "schemas": _reachable(paths),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"token": []}],
        }
    )


def _reachable(paths: Json) -> Json:
    """Return the named schemas that the paths use, also through other schemas; a reader has no operations."""
    found: Json = {}
    waiting = [*_names(orjson.dumps(paths))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = COMPONENTS[name]
            waiting += _names(orjson.dumps(COMPONENTS[name]))
    return {name: schema for name, schema in COMPONENTS.items() if name in found}


def _names(data: bytes) -> list[str]:
    return [part.partition(b'"')[0].decode() for part in data.split(b'"#/components/schemas/')[1:]]
