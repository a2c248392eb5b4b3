"""A live writer never looks cleanly closed, under any failures of its requests."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.load.target import ExistingDatabase
from shale.engine.write.clean_close import is_clean_close, require_clean_close, was_closed
from shale.env import Env
from shale.errors import InvalidDbState
from shale.format.names import manifest_key, manifest_prefix
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import ObjectStore
from shale.store.retry import RetryingStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Checkpoint, Epoch, Manifest, ManifestId, RunId, Seq, SortedRun, Tree, WalId
from tests.unit.engine.write.takeover.manifest_history import CLOSED, LIVE, pin, sign, stored_history

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


@pytest.mark.parametrize(
    ("newer", "closed"),
    [
        pytest.param(CLOSED, True, id="the WAL ends, no sign"),
        pytest.param(replace(CLOSED, next_wal_sst_id=WalId(7), replay_after_wal_id=WalId(6)), True, id="replay ends"),
        pytest.param(replace(LIVE, replay_after_wal_id=WalId(6)), True, id="the WAL ends, the sign was never there"),
        pytest.param(LIVE, True, id="nothing changes"),
        pytest.param(replace(LIVE, checkpoints=(pin(0),)), False, id="GC removes an expired sign"),
        pytest.param(replace(CLOSED, checkpoints=()), False, id="a checkpoint of another owner ends, too"),
        pytest.param(replace(CLOSED, checkpoints=(pin(0), pin(1))), False, id="something is pinned, too"),
        pytest.param(replace(LIVE, checkpoints=(*LIVE.checkpoints, pin(1))), False, id="something is pinned"),
        pytest.param(replace(CLOSED, checkpoints=LIVE.checkpoints, last_l0_seq=Seq(9)), False, id="a flush before"),
        pytest.param(replace(CLOSED, last_l0_seq=Seq(9)), False, id="a flush"),
    ],
)
def test_which_step_is_a_clean_close(newer: Manifest, *, closed: bool) -> None:
    assert is_clean_close(LIVE, newer) is closed


def pinned(manifest: Manifest, count: int) -> list[Manifest]:
    """Return ``count`` versions of other processes that follow a manifest, each with one more checkpoint."""
    return [
        replace(manifest, checkpoints=(*manifest.checkpoints, *map(pin, range(1, number + 1))))
        for number in range(1, count + 1)
    ]


COMPACTED = replace(
    CLOSED, compactor_epoch=Epoch(3), tree=Tree(compacted=(SortedRun(id=RunId(1), ssts=()),)), checkpoints=(pin(5),)
)
OF_A_WRITER = [
    replace(CLOSED, writer_epoch=Epoch(5)),
    replace(CLOSED, next_wal_sst_id=WalId(10), compactor_epoch=Epoch(3)),
    replace(CLOSED, replay_after_wal_id=WalId(5), compactor_epoch=Epoch(3)),
    replace(CLOSED, last_l0_seq=Seq(9)),
    replace(CLOSED, last_l0_clock_tick=9),
    replace(CLOSED, sequence_tracker=b"\x01" + bytes(11) + b"\x01"),
]


@pytest.mark.parametrize(
    ("versions", "closed"),
    [
        pytest.param([LIVE, CLOSED], True, id="closed"),
        pytest.param([LIVE, CLOSED, COMPACTED, *pinned(COMPACTED, 3)], True, id="others came later"),
        pytest.param([LIVE, CLOSED, *pinned(CLOSED, 15)], True, id="15 later versions"),
        pytest.param([LIVE, CLOSED, *pinned(CLOSED, 16)], None, id="16 later versions"),
        *[
            pytest.param([LIVE, CLOSED, each], False, id=f"a step of a writer {n}")
            for n, each in enumerate(OF_A_WRITER)
        ],
        pytest.param([LIVE], None, id="no step"),
        pytest.param([CLOSED, COMPACTED], None, id="none of the writer"),
    ],
)
def test_whether_the_last_writer_seems_to_have_closed(versions: list[Manifest], closed: bool | None) -> None:
    async def scenario() -> None:
        assert await was_closed(await stored_history(*versions)) is closed

    run(scenario)


def test_a_collected_version_tells_nothing() -> None:
    async def scenario() -> None:
        memory = MemoryStore()
        stored = await stored_history(LIVE, CLOSED, COMPACTED, store=memory)
        await memory.delete(manifest_key("db", 1))
        assert await was_closed(stored) is None
        with pytest.raises(InvalidDbState, match="is not known any more: the versions that would tell were collected"):
            await require_clean_close(stored, WalId(8))

    run(scenario)


@pytest.mark.parametrize(
    ("versions", "last_wal_id", "error"),
    [
        pytest.param([Manifest()], 99, None, id="never a writer"),
        pytest.param([LIVE, CLOSED], 8, None, id="closed"),
        pytest.param([LIVE, CLOSED], 9, "the manifest does not know WAL file 9", id="a file after the close"),
        pytest.param([LIVE, CLOSED, *pinned(CLOSED, 40)], 8, None, id="closed long ago"),
        pytest.param([LIVE, CLOSED, replace(CLOSED, last_l0_seq=Seq(9))], 8, "epoch 4 has not closed", id="a flush"),
        pytest.param([LIVE], 6, "made on host a, is still there; stop the writer", id="a sign of life"),
        pytest.param(
            [replace(LIVE, checkpoints=(sign(4, fields="x=1"),))], 6, "made on host unknown", id="a sign without a host"
        ),
        pytest.param([replace(LIVE, checkpoints=(sign(3),))], 6, "is not known any more", id="an older epoch"),
    ],
)
def test_who_may_open_without_a_fence(versions: list[Manifest], last_wal_id: int, error: str | None) -> None:
    async def scenario() -> None:
        stored = await stored_history(*versions)
        if error is None:
            await require_clean_close(stored, WalId(last_wal_id))
            return
        with pytest.raises(InvalidDbState, match=error):
            await require_clean_close(stored, WalId(last_wal_id))

    run(scenario)


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
