"""Which keys a database needs, and their replacement by compactions."""

from contextlib import asynccontextmanager

import anyio
import pytest

import shale
from shale.errors import InvalidDbState, InvalidRequestError
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.execution.options import ExecutorOptions
from tests.unit.backup.databases import admin, rows, write

pytestmark = pytest.mark.anyio
OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}
KEYS = shale.AesGcm({**NEW, **OLD})


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def store():
    """Return a store with two L0s and a WAL file of the old key."""
    made, old = MemoryStore(), shale.AesGcm(OLD)
    await write(made, {"a": "1", "b": "2"}, block_transformer=old)
    await write(made, {"b": "3"}, block_transformer=old)
    await write(made, {"wal": "row"}, block_transformer=old, flush="wal")
    return made


@asynccontextmanager
async def compacting(store, keys):
    """Run a compactor of the database, which only does what is submitted."""
    options = CompactorOptions(executor=ExecutorOptions(sst=SstOptions(transformer=keys)))
    compactor = Compactor(store, "db", shale.Env.system(), options)
    await compactor.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        yield
        tasks.cancel_scope.cancel()


def uses(status):
    return {use.key: (use.ssts, use.wal_files, sorted(use.checkpoints)) for use in status.uses}


async def test_the_status_needs_no_key(store):
    async with admin(store) as made:
        status = await made.encryption.status()
        assert (status.write_key, uses(status)) == (None, {"old": (2, 1, [])})
        with pytest.raises(InvalidRequestError, match=r"encryption\.key_file"):
            await made.encryption.rotate()
    async with admin(store, block_transformer=KEYS) as made:
        status = await made.encryption.status()
        assert (status.write_key, uses(status)) == ("new", {"new": (0, 0, []), "old": (2, 1, [])})
        assert [use.key for use in status.outdated] == ["old"]


async def test_a_rotation_rewrites_all_ssts_and_says_what_keeps_the_old_key(store):
    async with admin(store, block_transformer=KEYS) as made:
        await made.checkpoints.create(name="nightly")
        async with compacting(store, KEYS):
            status = await made.encryption.rotate()
        assert uses(status)["new"] == (1, 0, [])
        assert uses(status)["old"][:2] == (0, 1)
        assert "nightly" in uses(status)["old"][2]
        assert [use.key for use in status.outdated] == ["old"]
        await write(store, {"later": "row"}, block_transformer=KEYS, writer_checkpoint=False)
        for checkpoint in await made.checkpoints.list():  # also that of the compaction
            assert "old" in [use.key for use in (await made.encryption.status()).outdated]
            await made.checkpoints.delete(checkpoint.id)
        status = await made.encryption.status()
        assert uses(status)["old"] == (0, 0, [])
        assert uses(status)["new"][0] > 1
        assert status.outdated == ()
    assert await rows(store, block_transformer=shale.AesGcm(NEW)) == {"a": "1", "b": "3", "wal": "row", "later": "row"}


async def test_a_compactor_with_the_old_key_is_an_error(store):
    async with admin(store, block_transformer=KEYS) as made:
        old_first = shale.AesGcm({**OLD, **NEW})
        async with compacting(store, old_first):
            with pytest.raises(InvalidDbState, match="wrote with key old, not with key new"):
                await made.encryption.rotate()


async def test_a_dry_run_submits_nothing(store):
    async with admin(store, block_transformer=KEYS) as made:
        async with compacting(store, shale.AesGcm(OLD)):
            pass
        before = len(store.objects)
        assert uses(await made.encryption.rotate(dry_run=True))["old"][0] == 2
        assert len(store.objects) == before


async def test_a_database_without_encryption_is_named_as_such():
    plain = MemoryStore()
    await write(plain, {"a": "1"})
    async with admin(plain, block_transformer=KEYS) as made:
        status = await made.encryption.status()
        assert uses(status) == {"": (1, 0, []), "new": (0, 0, []), "old": (0, 0, [])}
