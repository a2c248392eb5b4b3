"""Destroying a database on real stores touches no object outside its path, for any object names."""

import random
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import shale
from shale.admin.admin import Admin
from shale.env import Env
from shale.errors import InvalidDeletion
from shale.store.cloud_store.adapter import CloudStore
from shale.store.local_store.adapter import LocalStore
from shale.store.memory import MemoryStore
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from tests.integration.store.servers import empty_s3_store, s3_server

pytestmark = pytest.mark.anyio

BUCKET = "shale-destroy"
INSIDE = (
    "db/a%2Fb",
    "db/%2E%2E/db2/manifest/00000000000000000001.manifest",
    "db/wal/%2e%2e%2f%2e%2e%2fdb2%2fnotes",
    "db/wal/00000000000000000001.sst%00",
    "db/Ünïcode räume/übersicht",
    "db/a+b&c=d",
    "db/...",
    "db/%",
    "db/100%25",
    "db/compacted/deeper/still",
)
OUTSIDE = (
    "db2/manifest/00000000000000000001.manifest",
    "db2/notes",
    "db-old/wal/00000000000000000001.sst",
    "db%2Fwal/00000000000000000001.sst",
    "dbb",
    "x/db/manifest/00000000000000000001.manifest",
    "manifest/00000000000000000001.manifest",
    "notes",
    "a/b",
    "Db/notes",
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server(BUCKET) as url:
        yield url


@pytest.fixture(params=["memory", "local", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "local":
        yield LocalStore(tmp_path / "store")
    else:
        async with empty_s3_store(request.getfixturevalue("endpoint"), BUCKET) as cloud:
            yield cloud


async def listed(store: ObjectStore) -> list[str]:
    return [meta.key for meta in await store.list("")]


@pytest.mark.slow
async def test_only_what_is_below_the_path_goes(store: ObjectStore) -> None:
    for key in (*INSIDE, *OUTSIDE):
        await store.put(key, b"x")
    async with shale.Db.open("db", store=store) as db:
        await db.put(b"k", b"v")
    before = await listed(store)
    async with Admin("db", store=store) as admin:
        with pytest.raises(InvalidDeletion, match="8 objects below db are not the database's own"):
            await admin.destroy(confirm=True)
        assert await listed(store) == before
        told = await admin.destroy(confirm=True, force=True)
    assert told.destroyed is not None
    assert {each.key for each in told.destroyed.objects} >= set(INSIDE)
    assert await listed(store) == sorted(OUTSIDE)


@pytest.mark.slow
async def test_unusual_database_names(store: ObjectStore) -> None:
    chance = random.Random(7)
    letters = ["%", "%2F", ".", "ä", " ", "+", "~", "'", "(", "=", "db", "&", "@", ":", ","]
    names = {"".join(chance.choices(letters, k=chance.randint(1, 6))) for _ in range(40)}
    names = {name for name in names if name.strip(". ") and not name.endswith(" ")}
    outside = sorted(f"{name}/x" for name in names if name != "db")
    for key in (*outside, *(f"db/{name}" for name in names)):
        await store.put(key, b"x")
    async with shale.Db.open("db", store=store) as db:
        await db.put(b"k", b"v")
    async with Admin("db", store=store) as admin:
        await admin.destroy(confirm=True, force=True)
    assert await listed(store) == outside


async def test_placeholders_of_folders_on_s3(endpoint: str) -> None:
    """Consoles create empty objects for folders; obstore returns their names without the slash."""
    config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
    store = CloudStore(f"s3://{BUCKET}", StoreOptions(config=config))
    for key in ("folders/", "folders/db/", "folders/db/wal/", "folders/db2/"):
        put_raw(endpoint, key)
    await store.put("folders/db2/notes", b"x")
    async with shale.Db.open("folders/db", store=store) as db:
        await db.put(b"k", b"v")
    async with Admin("folders/db", store=store) as admin:
        await admin.destroy(confirm=True)
    left = [key for key in await listed(store) if key.startswith("folders")]
    assert "folders/db2/notes" in left
    assert not [key for key in left if key.startswith("folders/db/") and key != "folders/db/wal"]
    await store.aclose()


def put_raw(endpoint: str, key: str) -> None:
    """Put an empty object under exactly this name."""
    url = f"{endpoint}/{BUCKET}/{urllib.parse.quote(key)}"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT")):
        pass


async def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "00000000000000000009.sst").write_bytes(b"mine")
    store = LocalStore(tmp_path / "store")
    env = Env.system()
    async with shale.Db.open("db", store=store, env=env) as db:
        await db.put(b"k", b"v")
    (tmp_path / "store" / "db" / "linked").symlink_to(outside)
    (tmp_path / "store" / "db" / "wal" / "linked").symlink_to(outside)
    async with Admin("db", store=store) as admin:
        with pytest.raises(InvalidDeletion, match="linked"):
            await admin.destroy(confirm=True)
        await admin.destroy(confirm=True, force=True)
    assert [file.name for file in outside.iterdir()] == ["00000000000000000009.sst"]
    assert await listed(store) == []
