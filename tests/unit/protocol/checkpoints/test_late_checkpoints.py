"""A checkpoint that is written after its database was destroyed: docs/reference/protocol.md 9, trace
T8.i.
"""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.errors import InvalidDbState
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.versioned import Versioned
from shale.types import Manifest
from tests.unit.protocol.conftest import Process, World, run

LATE = UUID(int=9)


async def begun(process: Process) -> None:
    """Create a database of three versions."""
    stored = await process.manifests.create_new(Manifest())
    for wal_id in (5, 6):
        await stored.apply(lambda current, wal_id=wal_id: replace(current.value, next_wal_sst_id=wal_id))


async def two_processes(world: World) -> tuple[Process, Process, Versioned[Manifest]]:
    """Return a process that wrote three versions, a second one, and the version that the second has created."""
    first, second = world.process(), world.process()
    await begun(first)
    stored = await second.manifests.load()
    created = await stored.apply(lambda current: replace(current.value, next_wal_sst_id=7))
    return first, second, created


def test_a_checkpoint_of_a_destroyed_database_is_refused(world: World) -> None:
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
    """Earlier deletions of the collector do not show what is missing now."""

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
    """It deletes the version below the checkpoint's between the create and the check, as it may."""

    async def main() -> None:
        a, b, created = await two_processes(world)
        await a.manifests.advance_boundary(created.id - 1)
        await a.manifests.delete_many([1, 2, 3])
        assert not await b.manifests.has_lost_history(created.id)

    run(main)


def test_a_collector_without_boundary_files_either(world: World) -> None:
    """Some versions of others are left, so the database was not destroyed."""

    async def main() -> None:
        a, b, created = await two_processes(world)
        await a.manifests.delete(created.id - 1)
        assert not await b.manifests.has_lost_history(created.id)

    run(main)


def test_a_checkpoint_that_is_listed_already_stays(world: World) -> None:
    """A collector without boundary files has deleted all older versions long ago."""

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
