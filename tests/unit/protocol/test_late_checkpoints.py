"""A checkpoint that is written when its database has been destroyed already: docs/protocol.md 9, trace T8.i."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.errors import InvalidDbState
from shale.protocol.checkpoints import create_checkpoint
from shale.types import Manifest
from tests.unit.protocol.conftest import Process, World, run

LATE = UUID(int=9)


async def begun(process: Process) -> None:
    """A database of three versions."""
    stored = await process.manifests.create_new(Manifest())
    for wal_id in (5, 6):
        await stored.apply(lambda current, wal_id=wal_id: replace(current.value, next_wal_sst_id=wal_id))


def test_what_was_destroyed_meanwhile_is_not_pinned(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await begun(a)
        stored = await b.manifests.load()
        await a.manifests.delete_many([1, 2, 3])
        with pytest.raises(InvalidDbState, match=r"db/manifest/0+4.manifest"):
            await create_checkpoint(stored, b.env, lifetime_ms=None, id=LATE)
        left = await a.manifests.read_latest()
        assert left.value.checkpoint(LATE) is None, "destroying it again would be refused"

    run(main)


def test_its_boundary_is_gone_as_well(world: World) -> None:
    """What the collector had deleted before says nothing about what is gone now."""

    async def main() -> None:
        a, b = world.process(), world.process()
        await begun(a)
        await a.manifests.advance_boundary(1)
        await a.manifests.delete(1)
        reading = b.manifests
        stored = await reading.load()
        await a.manifests.delete_many([2, 3])
        await world.memory.delete(reading.namespace.boundary_key)
        late = world.process()
        stored = type(stored)(late.manifests, stored.current, late.env)
        with pytest.raises(InvalidDbState, match="destroyed"):
            await create_checkpoint(stored, late.env, lifetime_ms=None, id=LATE)

    run(main)


def test_a_collector_that_is_quick_does_no_harm(world: World) -> None:
    """It deletes the version below the checkpoint's between the create and the look, as it may."""

    async def main() -> None:
        a, b = world.process(), world.process()
        await begun(a)
        stored = await b.manifests.load()
        created = await stored.apply(lambda current: replace(current.value, next_wal_sst_id=7))
        await a.manifests.advance_boundary(created.id - 1)
        await a.manifests.delete_many([1, 2, 3])
        assert not await b.manifests.begins_at(created.id)

    run(main)


def test_a_collector_without_boundary_files_either(world: World) -> None:
    """Of others' versions some are left, and then nothing was destroyed."""

    async def main() -> None:
        a, b = world.process(), world.process()
        await begun(a)
        stored = await b.manifests.load()
        created = await stored.apply(lambda current: replace(current.value, next_wal_sst_id=7))
        await a.manifests.delete(created.id - 1)
        assert not await b.manifests.begins_at(created.id)

    run(main)


def test_a_checkpoint_that_is_listed_already_stays(world: World) -> None:
    """A collector without boundary files has deleted all older versions, perhaps days ago."""

    async def main() -> None:
        a = world.process()
        await begun(a)
        stored = await a.manifests.load()
        made = await create_checkpoint(stored, a.env, lifetime_ms=None, id=LATE)
        await a.manifests.delete_many([1, 2, 3])
        assert await create_checkpoint(stored, a.env, lifetime_ms=None, id=LATE) == made
        latest = await world.process().manifests.read_latest()
        assert latest.value.checkpoint(LATE) == made

    run(main)
