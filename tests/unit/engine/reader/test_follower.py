"""``Follower`` alone: its checkpoints in the manifest, and the states that it serves, without a ``DbReader``."""

import anyio
import pytest

import shale
from shale.engine.read.pins import PinRef
from shale.engine.reader.follower import Follower
from shale.errors import CheckpointMissing, ClosedError, InvalidDbState, UnavailableError, WalTruncated
from shale.format.names import wal_key
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import WalId
from tests.unit.engine.reader.database import LIFETIME_S, Database, rows_in_wal
from tests.unit.protocol.conftest import run


async def followed_beyond_a_read(database: Database) -> tuple[Follower, PinRef]:
    """Return a follower that serves its second state, and the reference of a read of the first."""
    await database.write(b"a")
    follower = await database.opened(defer_checkpoint_release=True)
    ref = follower.state.pin.acquire()
    await database.write(b"b")
    await follower.poll()
    return follower, ref


def test_each_new_l0_replaces_the_only_checkpoint() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        follower = await database.opened()
        first = follower.state.pin.checkpoint_id
        assert list(await database.checkpoints()) == [first]
        await database.write(b"b")
        await follower.poll()
        second = follower.state.pin.checkpoint_id
        assert second != first
        assert list(await database.checkpoints()) == [second]
        assert len(follower.state.manifest.value.tree.l0) == 2

    run(main)


def test_a_poll_without_news_keeps_the_state_and_writes_nothing() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        follower = await database.opened()
        state, before = follower.state, dict(database.store.objects)
        await follower.poll()
        assert follower.state is state
        assert database.store.objects == before

    run(main)


def test_rows_of_the_wal_are_served_under_the_same_checkpoint() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        follower = await database.opened()
        pin = follower.state.pin
        async with shale.Db.open("db", store=database.store, env=database.env) as db:
            await db.put(b"b", b"v")
            await db.flush("wal")
            await follower.poll()
            assert rows_in_wal(follower) == [b"b"]
            assert follower.state.pin is pin
            assert follower.state.visible_seq == db.status.last_seq
            await db.flush("memtable")
            await follower.poll()
            assert rows_in_wal(follower) == []  # they are in L0 now
            assert follower.state.pin is not pin

    run(main)


def test_the_checkpoint_of_a_running_read_stays_and_is_renewed_until_it_ends() -> None:
    async def main() -> None:
        database = Database()
        follower, ref = await followed_beyond_a_read(database)
        old = ref.pin
        new = follower.state.pin
        assert set(await database.checkpoints()) == {old.checkpoint_id, new.checkpoint_id}
        database.clock.sleep(LIFETIME_S * 0.75)
        await follower.poll()
        expiries = {entry.expire_s for entry in (await database.checkpoints()).values()}
        assert expiries == {old.expire_s} == {new.expire_s} == {database.clock.ms // 1000 + LIFETIME_S}
        del ref
        database.clock.sleep(LIFETIME_S * 0.75)
        await follower.poll()
        assert set(await database.checkpoints()) == {new.checkpoint_id}
        old.check()

    run(main)


def test_a_lease_is_renewed_after_half_of_its_lifetime_and_not_before() -> None:
    async def main() -> None:
        database = Database()
        follower, expire_ms = await database.leased()
        database.clock.sleep(LIFETIME_S / 2)
        await follower.poll()
        assert follower.expire_ms == expire_ms
        database.clock.sleep(1)
        await follower.poll()
        assert follower.expire_ms == expire_ms + 1000 * (LIFETIME_S // 2 + 1)

    run(main)


def test_a_lost_lease_is_replaced_and_its_reads_fail() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        follower = await database.opened()
        lost = follower.state.pin
        assert lost.checkpoint_id is not None
        await release_checkpoints(await database.manifests().load(), [lost.checkpoint_id])
        await follower.poll()
        with pytest.raises(CheckpointMissing):
            lost.check()
        follower.state.pin.check()
        assert list(await database.checkpoints()) == [follower.state.pin.checkpoint_id]
        assert database.count("slatedb_reader_lease_lost_total") == 1
        assert database.count("slatedb_reader_reestablish_total") == 1

    run(main)


def test_a_lost_checkpoint_of_an_old_state_fails_only_its_own_reads() -> None:
    async def main() -> None:
        database = Database()
        follower, ref = await followed_beyond_a_read(database)
        old = ref.pin
        assert old.checkpoint_id is not None
        await release_checkpoints(await database.manifests().load(), [old.checkpoint_id])
        current = follower.state.pin
        await follower.poll()
        with pytest.raises(CheckpointMissing):
            ref.pin.check()
        assert follower.state.pin is current
        assert database.count("slatedb_reader_lease_lost_total") == 0

    run(main)


def test_reads_that_start_during_the_commit_wait_for_its_end() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        faulty = FaultyStore(database.store, database.env.rng)
        follower = await database.opened(store=faulty)
        old, found = follower.state, []
        await database.write(b"b")

        async def read() -> None:
            found.append(await follower.protected_state())

        async with anyio.create_task_group() as tasks:
            sent = anyio.Event()
            faulty.observe(lambda request: sent.set() if request.op == "put" else None)
            faulty.add(Rule(op="put", key_contains="manifest/", delay_before_s=0.01))
            tasks.start_soon(follower.poll)
            await sent.wait()
            assert old.pin.is_closing
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert found == []
        assert found == [follower.state]
        assert follower.state is not old

    run(main)


def test_a_commit_that_fails_lets_reads_go_on_with_the_old_state() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        faulty = FaultyStore(database.store, database.env.rng)
        follower = await database.opened(store=faulty)
        old = follower.state
        await database.write(b"b")
        faulty.add(Rule(fault=Fault.BEFORE, op="put", times=1))
        with pytest.raises(UnavailableError):
            await follower.poll()
        assert await follower.protected_state() is old
        await follower.poll()
        assert len(await database.checkpoints()) == 1

    run(main)


def test_close_removes_also_the_checkpoint_of_a_commit_whose_answer_was_lost() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        faulty = FaultyStore(database.store, database.env.rng)
        follower = await database.opened(store=faulty)
        await database.write(b"b")
        faulty.add(Rule(fault=Fault.AFTER, op="put", key_contains="manifest/", times=1))
        faulty.add(Rule(fault=Fault.BEFORE, op="get", key_contains="manifest/", times=1))
        with pytest.raises(UnavailableError):
            await follower.poll()
        await follower.close(ClosedError("the reader is closed"))
        assert await database.checkpoints() == {}
        with pytest.raises(ClosedError):
            follower.state.pin.acquire()

    run(main)


def test_a_destroyed_database_is_read_until_the_lease_expires() -> None:
    async def main() -> None:
        database = Database()
        follower, expire_ms = await database.leased()
        database.clock.ms = expire_ms - 1
        await follower.poll(destroyed=True)
        assert follower.expire_ms == expire_ms  # not renewed, although little is left of it
        database.clock.ms = expire_ms
        with pytest.raises(InvalidDbState, match="destroyed"):
            await follower.poll(destroyed=True)

    run(main)


def test_a_reader_without_protection_moves_on_and_writes_nothing() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        follower = await database.opened(follow_latest=True)
        assert follower.expire_ms is None
        await database.write(b"b")
        before = dict(database.store.objects)
        await follower.poll()
        assert len(follower.state.manifest.value.tree.l0) == 2
        assert database.store.objects == before

    run(main)


def test_a_checkpoint_is_read_as_it_was_with_its_wal_and_later_files_on_request() -> None:
    async def main() -> None:
        database = Database()
        await database.write(b"a")
        async with shale.Db.open("db", store=database.store, env=database.env) as db:
            await db.put(b"b", b"v")
            await db.flush("wal")
            last_id = max(int(key.split("/")[-1].split(".")[0]) for key in database.store.objects if "/wal/" in key)
            kept = await create_checkpoint(await database.manifests().load(), database.env, lifetime_ms=None)
            follower = await database.opened(checkpoint=kept.id)
            assert rows_in_wal(follower) == []
            later = await database.follower(checkpoint=kept.id)
            await later.open(through_wal_id=last_id)
            assert rows_in_wal(later) == [b"b"]
            state = later.state
            await db.flush("memtable")
            await later.poll()
            assert later.state is state
            await database.store.delete(wal_key("db", WalId(last_id)))
            with pytest.raises(WalTruncated):
                await (await database.follower(checkpoint=kept.id)).open(through_wal_id=last_id)

    run(main)
