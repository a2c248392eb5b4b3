"""A live writer never looks cleanly closed, under any failures of its requests."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.load.target import ExistingDatabase
from shale.engine.write.clean_close import is_clean_close
from shale.env import Env
from shale.errors import InvalidDbState
from shale.format.names import manifest_prefix
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import ObjectStore
from shale.store.retry import RetryingStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Checkpoint, Epoch, Manifest, ManifestId, Seq, WalId

ENV = Env.system()
LOST = {"times": 1, "op": "put", "key_contains": "/manifest/", "fault": Fault.AFTER}


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    anyio.run(scenario)


def unreliable(memory: MemoryStore) -> tuple[FaultyStore, ObjectStore]:
    """Return a store that can lose responses, and the options of a process on it."""
    faulty = FaultyStore(memory, Random(0))
    return faulty, RetryingStore(faulty, ENV, RetryPolicy(first_delay_s=0.001))


async def versions(memory: MemoryStore) -> int:
    return len(await memory.list(manifest_prefix("db")))


def take(store: ObjectStore, *, fence: bool = False) -> Awaitable[ExistingDatabase]:
    return ExistingDatabase.open(store, "db", ENV, Metrics(), fence=fence)


@pytest.mark.parametrize("attributes", [True, False], ids=["metadata", "no metadata"])
@pytest.mark.parametrize("lost", ["flush", "checkpoint"])
def test_a_lost_answer_to_a_manifest_is_no_close(lost: str, attributes: bool) -> None:
    async def scenario() -> None:
        memory = MemoryStore(supports_attributes=attributes)
        faulty, store = unreliable(memory)
        async with shale.Db.open("db", store=store, flush_interval=0, writer_checkpoint=False) as db:
            await (await db.put(b"key", b"value")).durable()
            before = await versions(memory)
            faulty.add(Rule(**LOST))
            if lost == "flush":
                await db.flush("memtable")
            else:
                await db.checkpoint(name="x", lifetime="1h", scope="durable")
            assert await versions(memory) == before + 1
            with pytest.raises(InvalidDbState, match="has not closed"):
                await take(memory)
            await (await db.put(b"key", b"still alive")).durable()
        await (await take(memory)).close()

    run(scenario)


def test_a_lost_answer_of_another_process_is_no_close_either() -> None:
    """A reader that renews its checkpoint or an administrator writes nothing twice."""

    async def scenario() -> None:
        memory = MemoryStore(supports_attributes=False)
        faulty, store = unreliable(memory)
        async with shale.Db.open("db", store=memory, flush_interval=0, writer_checkpoint=False) as db:
            await (await db.put(b"key", b"value")).durable()
            await db.flush("memtable")
            stored = await ManifestStore(store, "db", ENV).load()
            pin = Checkpoint(id=UUID(int=7), manifest_id=ManifestId(1), expire_s=2**32 - 1, create_s=5)
            faulty.add(Rule(**LOST))

            def change(current: Versioned[Manifest]) -> Manifest:
                return replace(current.value, checkpoints=(pin,))

            assert (await stored.apply(change)).value.checkpoints == (pin,)
            with pytest.raises(InvalidDbState, match="has not closed"):
                await take(memory)

    run(scenario)


def test_a_close_whose_answer_is_lost_is_a_close() -> None:
    async def scenario() -> None:
        memory = MemoryStore(supports_attributes=False)
        faulty, store = unreliable(memory)
        db = await shale.Db.open("db", store=store, flush_interval=0, writer_checkpoint=False)
        await (await db.put(b"key", b"value")).durable()
        await db.flush("memtable")
        faulty.add(Rule(**LOST))
        await db.close()
        await (await take(memory)).close()

    run(scenario)


def test_without_metadata_in_the_cloud_no_close_is_known() -> None:
    """SlateDB's writers repeat lost requests, so a version without a change proves nothing there."""

    async def scenario() -> None:
        cloud = MemoryStore(url="s3://bucket", supports_attributes=False)
        async with shale.Db.open("db", store=cloud, writer_checkpoint=False) as db:
            await db.put(b"key", b"value")
        with pytest.raises(InvalidDbState, match=r"keeps no metadata.*fence it explicitly"):
            await take(cloud)
        await (await take(cloud, fence=True)).close()
        kept = MemoryStore(url="s3://bucket")
        async with shale.Db.open("db", store=kept, writer_checkpoint=False) as db:
            await db.put(b"key", b"value")
        await (await take(kept)).close()

    run(scenario)


def sign(epoch: int) -> Checkpoint:
    return Checkpoint(id=UUID(int=epoch), manifest_id=ManifestId(3), name=f"writer:{epoch}?host=a")


LIVE = Manifest(writer_epoch=Epoch(4), next_wal_sst_id=WalId(7), replay_after_wal_id=WalId(4), checkpoints=(sign(4),))


@pytest.mark.parametrize(
    ("newer", "closed"),
    [
        pytest.param(replace(LIVE, replay_after_wal_id=WalId(6), checkpoints=()), True, id="the WAL ends, no sign"),
        pytest.param(replace(LIVE, replay_after_wal_id=WalId(6)), True, id="the WAL ends, the sign was never there"),
        pytest.param(LIVE, True, id="nothing changes"),
        pytest.param(replace(LIVE, checkpoints=()), False, id="GC removes an expired sign"),
        pytest.param(replace(LIVE, checkpoints=(sign(4), sign(3))), False, id="something is pinned"),
        pytest.param(
            replace(LIVE, replay_after_wal_id=WalId(6), last_l0_seq=Seq(9), checkpoints=()), False, id="a flush"
        ),
    ],
)
def test_which_step_is_a_clean_close(newer: Manifest, *, closed: bool) -> None:
    assert is_clean_close(LIVE, newer) is closed


def test_a_writer_whose_checkpoint_is_there_has_not_closed() -> None:
    async def scenario() -> None:
        memory = MemoryStore()
        async with shale.Db.open("db", store=memory) as db:
            await db.put(b"key", b"value")
            await db.flush("memtable")
            with pytest.raises(InvalidDbState, match="has not closed the database: its checkpoint, made on host"):
                await take(memory)
            await db.put(b"key", b"value")
        await (await take(memory)).close()

    run(scenario)
