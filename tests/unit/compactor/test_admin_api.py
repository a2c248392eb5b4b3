"""Requests of administrators over HTTP (docs/how-to/compact-manually.md)."""

from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from shale.admin.compactions import CompactionAdmin
from shale.api.admin_openapi import openapi_route
from shale.api.compactions_openapi import COMPACTIONS, SCHEMAS
from shale.compaction.requests import Spec, request_json
from shale.env import SystemClock
from shale.format.names import deleting_key
from shale.service.access import AccessTokens, Role
from shale.service.admin import AdminApp
from shale.service.admin_calls import BODY_MAX_BYTES
from shale.service.health import Health
from shale.telemetry.metrics import Metrics
from shale_compactor.admin_api import PATH, CompactionsApi
from tests.json_schemas import jsonschema
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree, ulid
from tests.unit.service.admin_client import admin_client, problem

pytestmark = pytest.mark.anyio
STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)))
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def served(*entries, token=None):
    """Yield the harness, a client, and the list of times at which the coordinator was woken."""
    harness = await Harness(STATE).create()
    await harness.compactions.load_or_create()
    if entries:
        await harness.edit(*entries)
    looks = []
    metrics = Metrics(db="db")
    app = AdminApp(
        Health(SystemClock(), metrics), metrics, AccessTokens([] if token is None else [(token, Role.ADMIN)])
    )
    admin = CompactionAdmin(harness.store, "db", harness.new_env(5))
    described = openapi_route(COMPACTIONS, schemas=SCHEMAS)
    for route in (*CompactionsApi(admin, changed=lambda: looks.append(1)).routes(), described):
        app.add_route(route)
    async with admin_client(app) as client:
        yield harness, client, looks


async def test_submit_look_at_and_cancel():
    async with served() as (harness, client, looks):
        answer = await client.post(PATH, json="Full")
        assert answer.status_code == 202
        assert answer.headers["cache-control"] == "no-store"
        first, second = answer.json()["compactions"]
        assert [each["spec"] for each in (first, second)] == [
            "[SR3, SR2, SR1] -> SR1",
            "segment 6c6f67 [SR8, SR6] -> SR6",
        ]
        assert "location" not in answer.headers
        assert looks == [1]

        listed = (await client.get(PATH)).json()
        assert listed["schema_version"] == 1
        assert {each["id"] for each in listed["compactions"]} == {first["id"], second["id"]}
        one = await client.get(f"{PATH}/{first['id']}")
        assert (one.status_code, one.json()["phase"]) == (200, "submitted")

        cancelled = await client.post(f"{PATH}/{first['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["error_message"]) == (200, "cancelled")
        assert looks == [1, 1]
        assert S.FAILED in statuses(await harness.stored()).values()
        late = problem(await client.post(f"{PATH}/{first['id']}/cancel"), 409)
        assert "too late" in late["detail"]
        assert looks == [1, 1]


async def test_one_submission_has_a_place():
    async with served() as (_, client, _looks):
        answer = await client.post(PATH, json={"FullSegment": {"segment": "log"}})
        (made,) = answer.json()["compactions"]
        assert answer.headers["location"] == f"{PATH}/{made['id']}"


async def test_a_dry_run_and_nothing_to_do_change_nothing():
    async with served() as (harness, client, looks):
        answer = await client.post(f"{PATH}?dry_run=true", json="Full")
        assert (answer.status_code, len(answer.json()["compactions"])) == (200, 2)
        assert (await harness.stored()).entries == ()
        assert looks == []


async def test_a_dry_run_that_is_wished_and_not_wished_changes_nothing():
    async with served() as (harness, client, _looks):
        problem(await client.post(f"{PATH}?dry_run=true&dry_run=false", json="Full"), 400)
        assert (await harness.stored()).entries == ()


@pytest.mark.parametrize(
    ("what", "status", "rule"),
    [
        pytest.param(spec((4, 3), to=9), 422, "V7", id="would lose the rows of older L0s"),
        pytest.param(spec(runs=(2, 1), to=1), 409, "V12", id="overlaps with a submitted one"),
        pytest.param(spec(runs=(9,), to=9), 422, "V4", id="unknown run"),
    ],
)
async def test_what_would_lose_rows_is_refused_with_its_rule(what, status, rule):
    async with served(entry(50, spec(runs=(1,), to=1))) as (harness, client, looks):
        for query in ("", "?dry_run=true"):
            told = problem(await client.post(PATH + query, json=request_json(Spec(what))), status)
            assert told["rule"] == rule
            assert told["detail"].startswith(f"{rule}: [")
            assert told["retryable"] is False
        assert len((await harness.stored()).entries) == 1
        assert looks == []


@pytest.mark.parametrize(
    ("content", "headers", "status", "detail"),
    [
        (b"{", JSON, 400, "not JSON"),
        (b"{}", JSON, 400, "request: write"),
        (b'{"Spec": {"source": []}}', JSON, 400, "Spec.source: no such field"),
        (b"Full", {"Content-Type": "text/plain"}, 415, "text/plain"),
        (b"\xa4Full", {"Content-Type": "application/msgpack"}, 415, "application/json"),
        (b'"' + b"x" * BODY_MAX_BYTES + b'"', JSON, 413, "more than"),
    ],
)
async def test_bodies_that_are_no_request(content, headers, status, detail):
    async with served() as (harness, client, _):
        told = problem(await client.post(PATH, content=content, headers=headers), status)
        assert detail in told["detail"]
        assert (await harness.stored()).entries == ()


async def test_what_is_not_there_and_what_is_misspelt():
    async with served() as (harness, client, _):
        problem(await client.get(f"{PATH}/{ulid(5)}"), 404)
        problem(await client.post(f"{PATH}/{ulid(5)}/cancel"), 404)
        assert "'5' is not the id" in problem(await client.get(f"{PATH}/5"), 400)["detail"]
        for path in (f"{PATH}?al=true", f"{PATH}?all=yes", f"{PATH}/{ulid(5)}?all=true"):
            problem(await client.get(path), 400)
        problem(await client.post(f"{PATH}?dryrun=true", json="Full"), 400)
        assert (await client.delete(PATH)).status_code == 405
        await harness.store.put(deleting_key("db"), b"")
        assert "destroyed" in problem(await client.post(PATH, json="Full"), 409)["detail"]


async def test_older_versions_are_told_on_request():
    done = (entry(5, spec(runs=(3,), to=3), S.COMPLETED), entry(6, spec(runs=(2,), to=2), S.COMPLETED))
    async with served(*done) as (harness, client, _):
        stored = await harness.compactions.load()
        await stored.apply(lambda current: type(current.value)(entries=current.value.entries[1:]))
        assert [each["id"] for each in (await client.get(PATH)).json()["compactions"]] == [str(ulid(6))]
        told = (await client.get(f"{PATH}?all=true")).json()["compactions"]
        assert [each["id"] for each in told] == [str(ulid(5)), str(ulid(6))]


async def test_a_token_guards_the_admin_calls_and_nothing_else():
    async with served(token=SecretStr("s3cret")) as (harness, client, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
            told = await client.post(PATH, json="Full", headers=headers)
            problem(told, 401)
            is_unknown = headers.get("Authorization") == "Bearer wrong"
            assert told.headers["www-authenticate"] == ('Bearer error="invalid_token"' if is_unknown else "Bearer")
            assert (await client.get("/v1/admin/log-level", headers=headers)).status_code == 401
            assert (await client.get("/livez", headers=headers)).status_code in (200, 503)
        assert (await harness.stored()).entries == ()
        answer = await client.post(PATH, json="Full", headers={"Authorization": "bearer s3cret"})
        assert answer.status_code == 202


async def test_what_is_not_served_is_a_problem_document_as_well():
    async with served() as (_harness, client, _looks):
        told = problem(await client.delete(PATH), 405)
        assert told["detail"].startswith(f"DELETE {PATH}: method not allowed")
        problem(await client.get("/v1/admin/compaction"), 404)


async def test_the_port_describes_what_it_takes_and_answers():
    async with served(entry(900, spec((2, 1), to=9), S.RUNNING)) as (_, client, _):
        document = (await client.get("/openapi.json")).json()

        def validator(name):
            return jsonschema.Draft202012Validator({**document["components"]["schemas"][name], **shared})

        shared = {"components": document["components"]}
        served_paths = {PATH, *(f"{PATH}/{{compaction_id}}{end}" for end in ("", "/cancel", "/retry"))}
        assert served_paths < set(document["paths"])
        for request in ({"Full": {}}, {"FullSegment": {"segment": list(b"log")}}):
            validator("CompactionRequest").validate(request)
            answer = await client.post(f"{PATH}?dry_run=true", json=request)
            assert answer.status_code == 200, answer.text
            validator("Compactions").validate(answer.json())
        listed = (await client.get(PATH)).json()
        validator("Compactions").validate(listed)
        (only,) = listed["compactions"]
        assert set(only) == set(document["components"]["schemas"]["Compaction"]["properties"])
        validator("CompactionRequest").validate(only["request"])
        validator("OneCompaction").validate((await client.get(f"{PATH}/{only['id']}")).json())
        for wrong in ("Full", {"Full": {}, "Spec": {}}, {"Spec": {"sources": [{"SortedRun": "3"}]}}):
            assert not validator("CompactionRequest").is_valid(wrong)
