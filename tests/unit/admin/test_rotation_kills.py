"""A rotation that is killed at any request, beside a writer and a compactor: the next one completes it."""

import anyio
import pytest

import shale
from shale.store.memory import MemoryStore
from tests.unit.admin.test_encryption import KEYS, NEW, OLD, compacting, uses
from tests.unit.backup.databases import admin, rows, write
from tests.unit.backup.killing_store import Countdown, Killed, KillingStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def made() -> MemoryStore:
    store, old = MemoryStore(), shale.AesGcm(OLD)
    await write(store, {"a": "1", "b": "2"}, block_transformer=old)
    await write(store, {"b": "3"}, block_transformer=old)
    async with compacting(store, KEYS):
        pass  # its first start makes the file of compactions
    return store


async def test_a_second_rotation_waits_for_the_compaction_of_the_first() -> None:
    store = await made()
    async with admin(store, block_transformer=KEYS) as place:
        await place.encryption.rotate(wait=False)
        async with compacting(store, KEYS):
            status = await place.encryption.rotate()
        assert uses(status)["new"] == (1, 0, [])
    assert await rows(store, block_transformer=KEYS) == {"a": "1", "b": "3"}


@pytest.mark.slow
async def test_a_rotation_that_is_killed_at_any_request_is_completed_by_the_next() -> None:
    counted = Countdown()
    store = await made()
    async with compacting(store, KEYS), admin(KillingStore(store, counted), block_transformer=KEYS) as place:
        await place.encryption.rotate()
    for last in range(1, counted.requests + 1, 3):
        store = await made()
        async with shale.Db.open("db", store=store, block_transformer=KEYS, writer_checkpoint=False) as db:
            async with compacting(store, KEYS):
                with pytest.raises(Killed):
                    async with admin(KillingStore(store, Countdown(last)), block_transformer=KEYS) as place:
                        await place.encryption.rotate()
                await (await db.put(b"beside", b"%d" % last)).durable()
                async with admin(store, block_transformer=KEYS) as place:
                    with anyio.fail_after(60):
                        status = await place.encryption.rotate()
            assert uses(status)["old"][0] == 0, last
            await db.flush("memtable")
        async with admin(store, block_transformer=KEYS) as place:
            for checkpoint in await place.checkpoints.list():
                await place.checkpoints.delete(checkpoint.id)
            assert (await place.encryption.status()).outdated == (), last
            assert (await place.verify(deep=True)).findings == ()
        assert await rows(store, block_transformer=shale.AesGcm(NEW)) == {"a": "1", "b": "3", "beside": str(last)}
