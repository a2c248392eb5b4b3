"""Checkpoints over HTTP, on a writer and on a process without a writer."""

from contextlib import asynccontextmanager
from urllib.parse import quote
from uuid import UUID

import pytest
from pydantic import SecretStr

import shale
from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.context import AdminContext
from shale.api.admin_openapi import checkpoint_paths, openapi_route
from shale.api.routes.checkpoints import PATH, CheckpointRoutes
from shale.engine.location import DatabaseStores
from shale.env import Env, SystemClock
from shale.format.names import destroyed_key
from shale.service.access import AccessTokens, Role
from shale.service.admin import AdminApp
from shale.service.health import Health
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.service.admin_client import admin_client, problem

pytestmark = pytest.mark.anyio
UNKNOWN = UUID(int=9)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def served(*, writes=True, token=None):
    """Yield a client of the admin port, the writer that serves it, and the store."""
    store, env, metrics = MemoryStore(), Env.system(), Metrics(db="db")
    async with shale.Db.open("db", store=store, flush_interval=0, writer_checkpoint=False) as db:
        app = AdminApp(
            Health(SystemClock(), metrics), metrics, AccessTokens([] if token is None else [(token, Role.ADMIN)])
        )
        place = AdminContext.of(
            DatabaseStores(store, None, ()), "db", env, metrics, component="writer" if writes else "gc"
        )
        for route in CheckpointRoutes(CheckpointAdmin(place), env, db if writes else None).routes():
            app.add_route(route)
        app.add_route(openapi_route(checkpoint_paths(with_scope=writes)))
        async with admin_client(app) as client:
            yield client, db, store


async def test_a_writer_makes_checkpoints_of_what_is_written():
    async with served() as (client, db, _):
        await db.put(b"k", b"v")
        answer = await client.post(PATH, json={"name": "nightly", "lifetime": "7days 30min"})
        made = answer.json()
        assert (answer.status_code, answer.headers["location"]) == (201, f"{PATH}/{made['id']}")
        assert (made["name"], made["state"], made["schema_version"]) == ("nightly", "active", 1)
        assert made["expire_ms"] - made["create_ms"] in (606_600_000, 606_601_000)
        assert len(db.status.manifest.tree.l0) == 1
        await db.put(b"k", b"w")
        durable = (await client.post(PATH, json={"scope": "durable"})).json()
        assert (durable["state"], durable["expire_time"], db.status.manifest.last_l0_seq) == ("no_expiry", None, 1)
        copy = (await client.post(PATH, json={"source": made["id"]})).json()
        assert copy["manifest_id"] == made["manifest_id"]
        listed = (await client.get(PATH)).json()["checkpoints"]
        assert [each["id"] for each in listed] == [made["id"], durable["id"], copy["id"]]
        named = (await client.get(PATH, params={"name": "nightly"})).json()["checkpoints"]
        assert named == listed[:1]
        assert (await client.get(f"{PATH}/{made['id']}")).json() == made


@pytest.mark.parametrize("writes", [True, False], ids=["writer", "collector"])
async def test_a_repeated_request_makes_nothing_twice(writes):
    async with served(writes=writes) as (client, db, _):
        wanted = {"id": str(UUID(int=77)), "name": "once"}
        first, second = [(await client.post(PATH, json=wanted)).json() for _ in range(2)]
        assert first == second
        assert first["id"] == wanted["id"]
        await db.refresh()
        assert len(db.status.manifest.checkpoints) == 1


@pytest.mark.parametrize("writes", [True, False], ids=["writer", "collector"])
async def test_refresh_and_delete(writes):
    async with served(writes=writes) as (client, db, _):
        made = (await client.post(PATH)).json()
        one = f"{PATH}/{made['id']}"
        assert (await client.patch(one, json={"lifetime": 60})).json()["state"] == "active"
        assert (await client.patch(one, json={"lifetime": None})).json() == made
        problem(await client.patch(one, json={}), 400)
        problem(await client.patch(f"{PATH}/{UNKNOWN}", json={"lifetime": 60}), 404)
        assert [(await client.delete(one)).status_code for _ in range(2)] == [204, 204]
        problem(await client.get(one), 404)
        await db.refresh()
        assert not db.status.manifest.checkpoints


@pytest.mark.parametrize("writes", [True, False], ids=["writer", "collector"])
async def test_names_stand_for_ids(writes):
    async with served(writes=writes) as (client, _, _):
        name = "of the night/ünicode ?@1"
        one = f"{PATH}/{quote(name, safe='')}"
        made = (await client.post(PATH, json={"name": name})).json()
        assert (await client.get(one)).json() == made
        assert (await client.patch(one, json={"lifetime": 60})).json()["state"] == "active"
        copy = (await client.post(PATH, json={"source": name, "name": name})).json()
        assert copy["manifest_id"] == made["manifest_id"]
        for answer in (await client.get(one), await client.delete(one), await client.post(PATH, json={"source": name})):
            detail = problem(answer, 400)["detail"]
            assert made["id"] in detail
            assert copy["id"] in detail
        assert (await client.delete(f"{PATH}/{made['id']}")).status_code == 204
        assert (await client.delete(one)).status_code == 204
        assert (await client.get(PATH)).json()["checkpoints"] == []


async def test_what_is_wrong_is_said_and_writes_nothing():
    async with served() as (client, db, _):
        before = db.status.manifest_id
        for body in (
            {"lifetime": "soon"},
            {"lifetime": 0},
            {"lifetime": 2**33},
            {"lifetime": True},
            {"name": 5},
            {"scope": "some"},
            {"source": ""},
            {"nmae": "nightly"},
            ["nightly"],
        ):
            problem(await client.post(PATH, json=body), 400)
        problem(await client.post(PATH, content=b"{"), 400)
        problem(await client.post(PATH, json={"source": str(UNKNOWN)}), 404)
        problem(await client.post(PATH, content=b"x", headers={"Content-Type": "text/plain"}), 415)
        problem(await client.get(PATH, params={"names": "x"}), 400)
        problem(await client.post(PATH, json={"source": "x"}), 404)
        problem(await client.get(f"{PATH}/nightly"), 404)
        problem(await client.delete(f"{PATH}/nightly"), 404)
        problem(await client.patch(f"{PATH}/nightly", json={"lifetime": 60}), 404)
        problem(await client.put(PATH), 405)
        await db.refresh()
        assert db.status.manifest_id == before


async def test_only_a_writer_has_a_scope_and_a_destroyed_database_keeps_nothing_new():
    async with served(writes=False) as (client, _, store):
        assert "scope" in problem(await client.post(PATH, json={"scope": "durable"}), 400)["detail"]
        await store.put(destroyed_key("db"), b"{}")
        assert problem(await client.post(PATH), 409)["kind"] == "data"


async def test_the_token_is_asked_for():
    async with served(token=SecretStr("secret")) as (client, _, _):
        problem(await client.get(PATH), 401)
        assert (await client.get(PATH, headers={"Authorization": "Bearer secret"})).status_code == 200


@pytest.mark.parametrize("writes", [True, False], ids=["writer", "collector"])
async def test_the_description_has_every_call_and_no_other(writes):
    async with served(writes=writes) as (client, _, _):
        document = (await client.get("/openapi.json")).json()
        described = {
            (path, method.upper())
            for path, calls in document["paths"].items()
            for method in calls
            if path.startswith(PATH) and method != "parameters"
        }
        assert described == {
            (PATH, "GET"),
            (PATH, "POST"),
            (f"{PATH}/{{checkpoint_id}}", "GET"),
            (f"{PATH}/{{checkpoint_id}}", "PATCH"),
            (f"{PATH}/{{checkpoint_id}}", "DELETE"),
        }
        body = document["paths"][PATH]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["properties"]) == {"lifetime", "name", "source", "id"} | ({"scope"} if writes else set())
