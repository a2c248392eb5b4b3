"""SIGKILL of a real ``shale db destroy`` at chosen requests: the next run completes; other databases stay.

Around the database lie a parent that it is a clone of, a sibling whose name begins alike, and names that a careless
reading would take for its own.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import shale
from shale.admin.admin import Admin
from shale.store.cloud_store.adapter import CloudStore
from shale.store.options import StoreOptions
from tests.integration.gc.killing_proxy import Choose, Gate, Kill, Seen, gate_to
from tests.integration.store.servers import s3_server
from tests.paths import PYTHONPATH

BUCKET = "shale-destroy-kills"
CREDENTIALS = {"AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_REGION": "r"}
ROWS = {b"k%02d" % number: b"v" * 50 for number in range(20)}
OUTSIDE = (
    "db-old/wal/00000000000000000001.sst",
    "db%2F..%2Fx/notes",
    "db../x",
    "x/db/manifest/00000000000000000001.manifest",
    "dbä/Übersicht",
    "数据库/db",
    "db2/Ünïcode räume",
    "Db/notes",
    "manifest/00000000000000000001.manifest",
)

Objects = dict[str, bytes]


@dataclass(frozen=True)
class Bucket:
    """A bucket with a clone ``db``, its parent ``p``, a sibling ``db2``, and unrelated objects."""

    gate: Gate
    folder: Path
    before: Objects

    async def objects(self) -> Objects:
        store = store_at(self.gate.upstream)
        try:
            return await all_of(store)
        finally:
            await store.aclose()

    async def restore(self) -> None:
        store = store_at(self.gate.upstream)
        for key in (await all_of(store)).keys() - self.before.keys():
            await store.delete(key)
        for key, data in self.before.items():
            await store.put(key, data)
        await store.aclose()

    def destroy(self, choose: Choose = lambda _: None) -> int:
        """Run the command; return its exit code, negative if it was killed."""
        command = [sys.executable, "-m", "shale_cli", "db", "destroy", "--yes", "-u", f"s3://{BUCKET}/db"]
        environment = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT": self.gate.url, "PYTHONPATH": PYTHONPATH}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log)
            self.gate.watch(process, choose)
            return process.wait(120)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    async def check_others(self) -> Objects:
        """Check the objects outside the database, and return those of the database."""
        now = await self.objects()
        for key, data in self.before.items():
            if not key.startswith(("db/", "p/manifest/")):
                assert now.get(key) == data, f"{key} was touched"
        assert {key for key in now if not key.startswith(("db/", "p/manifest/"))} <= self.before.keys()
        return {key: data for key, data in now.items() if key.startswith("db/")}

    async def check_end(self) -> None:
        assert await self.check_others() == {}
        store = store_at(self.gate.upstream)
        for path in ("p", "db2"):
            async with Admin(path, store=store) as admin:
                assert [each for each in await admin.checkpoints.list() if not each.expire_s] == []
            async with shale.DbReader.open(path, store=store, follow_latest=True) as reader:
                assert {bytes(row.key): bytes(row.value) async for row in reader.scan()} == ROWS
        await store.aclose()


def store_at(url: str) -> CloudStore:
    config = {"endpoint": url, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
    return CloudStore(f"s3://{BUCKET}", StoreOptions(config=config))


async def all_of(store: CloudStore) -> Objects:
    found = {}
    for meta in await store.list(""):
        got = await store.get(meta.key)
        assert got is not None
        found[meta.key] = bytes(got.data)
    return found


async def make(url: str) -> Objects:
    store = store_at(url)
    for path in ("p", "db2"):
        async with shale.Db.open(path, store=store) as db:
            for key, value in ROWS.items():
                await db.put(key, value)
    async with Admin("db", store=store) as admin:
        await admin.clones.create("p")
    async with shale.Db.open("db", store=store) as db:
        await db.put(b"own", b"row")
    async with Admin("db", store=store) as admin:
        for checkpoint in await admin.checkpoints.list():
            await admin.checkpoints.delete(checkpoint.id)
    async with Admin("p", store=store) as admin:
        kept = [each for each in await admin.checkpoints.list() if not each.expire_s]
        assert kept, "the clone's pin"
        for each in await admin.checkpoints.list():
            if each.expire_s:
                await admin.checkpoints.delete(each.id)
    for key in OUTSIDE:
        await store.put(key, b"not yours")
    objects = await all_of(store)
    await store.aclose()
    return objects


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with s3_server(BUCKET) as url, gate_to(url) as gate:
        yield Bucket(gate, tmp_path, asyncio.run(make(url)))


def putting(key: str, side: Kill) -> Choose:
    return lambda seen: side if seen.method == "PUT" and key in seen.path else None


def deleting(key: str, side: Kill) -> Choose:
    """Return the keys in the body of a request that deletes many objects."""
    return lambda seen: side if seen.method == "POST" and key.encode() in seen.body else None


@pytest.mark.slow
def test_killed_again_and_again_it_completes(bucket: Bucket) -> None:
    """Kill the run after its seal, after the marker, among deletions, and before the last one."""
    moments = (
        putting("/db/manifest/", Kill.AFTER),
        putting("/db/.deleting", Kill.AFTER),
        deleting("db/wal/", Kill.AFTER),
        deleting("db/.deleting", Kill.BEFORE),
    )
    for number, choose in enumerate(moments):
        assert bucket.destroy(choose) == -9, f"{number}: {bucket.log()}"
        left = asyncio.run(bucket.check_others())
        assert left, "something is left to do"
        if "db/.deleting" not in left:
            assert left.keys() >= {key for key in bucket.before if key.startswith("db/")}, "nothing goes unmarked"
    assert left.keys() == {"db/.deleting"}
    assert bucket.destroy() == 0, bucket.log()
    asyncio.run(bucket.check_end())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("side", Kill)
def test_a_kill_at_every_request(bucket: Bucket, side: Kill) -> None:
    number = killed = 0
    while True:
        asyncio.run(bucket.restore())

        def choose(seen: Seen, wanted: int = number) -> Kill | None:
            return side if seen.number == wanted else None

        code = bucket.destroy(choose)
        asyncio.run(bucket.check_others())
        if bucket.gate.killed_at is None:
            assert code == 0, bucket.log()
            break
        killed += 1
        assert bucket.destroy() == 0, f"{bucket.gate.killed_at}: {bucket.log()}"
        asyncio.run(bucket.check_end())
        number += 1
    assert killed > 20
