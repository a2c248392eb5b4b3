"""``admin.checkpoints`` and ``admin.states`` on a store in memory (docs/reference/protocol.md 9, 13.1)."""

import random
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

import shale
from shale.env import Env, InlineCpu
from shale.errors import (
    AmbiguousCheckpoint,
    CheckpointMissing,
    ClosedError,
    InvalidCheckpointLifetime,
    InvalidDbState,
    InvalidRequestError,
    LatestRecordMissing,
    UnknownCheckpoint,
)
from shale.format.names import destroyed_key
from shale.protocol.manifest_store import ManifestStore
from shale.service.exit_codes import ExitCode, command_exit_code
from shale.service.http.problems import problem_from
from shale.store.memory import MemoryStore
from shale.types import Manifest
from tests.clocks import ManualClock
from tests.unit.compactor.values import manifest, tree

pytestmark = pytest.mark.anyio
FAR = 2**32


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def admin_of(first=Manifest()):  # noqa: B008 - a frozen value
    """Return an administrator of a database with one manifest (or none), its store and its clock."""
    store, clock = MemoryStore(), ManualClock(ms=100_900)
    env = Env(clock, random.Random(3), InlineCpu())
    if first is not None:
        await ManifestStore(store, "db", env).create_new(first)
    async with shale.Admin(store=store, path="db", env=env) as admin:
        yield admin, store, clock


async def test_a_checkpoint_keeps_the_version_that_contains_it():
    async with admin_of() as (admin, _, _):
        made = await admin.checkpoints.create("1.5s", name="nightly")
        assert (made.manifest_id, made.expire_s, made.create_s, made.name) == (2, 102, 100, "nightly")
        stored = await admin.states.manifest(2)
        assert stored.value.checkpoints == (made,)
        assert await admin.checkpoints.get(str(made.id)) == made


async def test_a_repeated_creation_changes_nothing_even_when_its_source_is_gone():
    async with admin_of() as (admin, _, _):
        source = await admin.checkpoints.create()
        wanted = uuid4()
        made = await admin.checkpoints.create(source=source.id, checkpoint_id=wanted)
        assert (made.id, made.manifest_id) == (wanted, source.manifest_id)
        assert await admin.checkpoints.delete(source.id)
        assert await admin.checkpoints.create(source=source.id, checkpoint_id=str(wanted)) == made
        assert (await admin.states.manifest()).id == 4


async def test_an_expired_source_that_is_not_collected_yet_is_refused():
    async with admin_of() as (admin, _, clock):
        source = await admin.checkpoints.create("10s")
        clock.ms = source.expire_s * 1000 - 1
        await admin.checkpoints.create(source=source.id)
        clock.ms += 1
        with pytest.raises(CheckpointMissing):
            await admin.checkpoints.create(source=source.id)
        assert source in await admin.checkpoints.list()


@pytest.mark.parametrize("lifetime", [0, FAR, "0s"], ids=["nothing", "beyond 32 bits", "nothing, in words"])
async def test_lifetimes_that_cannot_be_stored_write_nothing(lifetime):
    async with admin_of() as (admin, _, _):
        made = await admin.checkpoints.create()
        for call in (admin.checkpoints.create(lifetime), admin.checkpoints.refresh(made.id, lifetime)):
            with pytest.raises(InvalidCheckpointLifetime):
                await call
        assert (await admin.states.manifest()).id == 2


async def test_refreshing_sets_another_end():
    async with admin_of() as (admin, _, clock):
        made = await admin.checkpoints.create("10s")
        clock.ms = 200_000
        assert (await admin.checkpoints.refresh(made.id, "1h")).expire_s == 3_800
        assert (await admin.checkpoints.refresh(made.id)).expire_s == 0
        (listed,) = await admin.checkpoints.list()
        assert listed == replace(made, expire_s=0)


async def test_unknown_checkpoints():
    unknown = UUID(int=7)
    async with admin_of() as (admin, _, _):
        with pytest.raises(UnknownCheckpoint) as caught:
            await admin.checkpoints.refresh(unknown, "1h")
        assert isinstance(caught.value, InvalidDbState)
        assert command_exit_code(caught.value) is ExitCode.NOT_FOUND
        assert problem_from(caught.value).status == 404
        with pytest.raises(CheckpointMissing):
            await admin.checkpoints.create(source=unknown)
        with pytest.raises(CheckpointMissing):
            await admin.checkpoints.get(unknown)
        assert not await admin.checkpoints.delete(unknown)
        assert (await admin.states.manifest()).id == 1
        with pytest.raises(CheckpointMissing, match="no checkpoint is named 'nightly'"):
            await admin.checkpoints.delete("nightly")
        with pytest.raises(UnknownCheckpoint, match="no checkpoint named 'nightly'"):
            await admin.checkpoints.refresh("nightly", "1h")
        for call in (admin.checkpoints.delete, admin.checkpoints.get, admin.checkpoints.refresh):
            with pytest.raises(InvalidRequestError, match="neither the id of a checkpoint"):
                await call("")


async def test_a_name_stands_for_the_one_that_has_it():
    async with admin_of() as (admin, _, clock):
        nightly = await admin.checkpoints.create("10s", name="nightly")
        copy = await admin.checkpoints.create(source="nightly", name="copy")
        assert copy.manifest_id == nightly.manifest_id
        assert (await admin.checkpoints.refresh("copy", "1h")).id == copy.id
        assert (await admin.checkpoints.exclusive_ssts("nightly")).checkpoint == nightly
        twin = await admin.checkpoints.create(name="nightly")
        for call in (admin.checkpoints.get, admin.checkpoints.delete, admin.checkpoints.refresh):
            with pytest.raises(AmbiguousCheckpoint, match=f"{nightly.id}, {twin.id}") as caught:
                await call("nightly")
            assert command_exit_code(caught.value) is ExitCode.USAGE
        clock.ms += 60_000
        assert await admin.checkpoints.get("nightly") == twin
        with pytest.raises(CheckpointMissing):
            await admin.checkpoints.create(source=nightly.id)
        assert (await admin.checkpoints.create(source="nightly")).manifest_id == twin.manifest_id
        assert await admin.checkpoints.delete("nightly")
        assert await admin.checkpoints.get("nightly") == nightly, "expired, and not collected yet"


async def test_names_are_not_unique_and_the_empty_one_asks_for_none():
    async with admin_of() as (admin, _, _):
        first, second = await admin.checkpoints.create(name="a"), await admin.checkpoints.create(name="a")
        bare, empty = await admin.checkpoints.create(), await admin.checkpoints.create(name="")
        assert await admin.checkpoints.list("a") == (first, second)
        assert await admin.checkpoints.list("") == (bare, empty)
        assert await admin.checkpoints.list("A") == ()
        assert await admin.checkpoints.list() == (first, second, bare, empty)


async def test_a_destroyed_database_lets_go_but_keeps_nothing_new():
    async with admin_of() as (admin, store, _):
        made = await admin.checkpoints.create("10s")
        await store.put(destroyed_key("db"), b"{}")
        for source in (None, made.id):
            with pytest.raises(InvalidDbState):
                await admin.checkpoints.create(source=source)
        assert (await admin.checkpoints.refresh(made.id, "20s")).expire_s == 120
        assert await admin.checkpoints.delete(made.id)


async def test_a_half_built_database_has_no_state_to_keep():
    async with admin_of(replace(Manifest(), initialized=False)) as (admin, _, _):
        with pytest.raises(InvalidDbState):
            await admin.checkpoints.create()


async def test_without_a_database():
    async with admin_of(None) as (admin, _, _):
        parts = admin.checkpoints
        for call in (parts.create(), parts.refresh(uuid4()), parts.delete(uuid4()), parts.list(), parts.get(uuid4())):
            with pytest.raises(LatestRecordMissing):
                await call
        assert await admin.states.manifest() is None
        assert await admin.states.compactions() is None
        with pytest.raises(LatestRecordMissing):
            await admin.states.state_view()
    with pytest.raises(ClosedError):
        admin.checkpoints  # noqa: B018 - looking is what fails


async def test_versions_are_read_in_order_and_collected_ones_are_left_out():
    async with admin_of() as (admin, store, _):
        for _ in range(4):
            await admin.checkpoints.create()
        metas = await admin.states.manifest_versions(2, 5)
        assert [meta.id for meta in metas] == [2, 3, 4]
        found = []
        async for version in admin.states.manifests(2):
            found.append((version.id, len(version.value.checkpoints)))
            if version.id == 2:
                await store.delete("db/manifest/00000000000000000003.manifest")
        assert found == [(2, 1), (4, 3), (5, 4)]
        assert await admin.states.manifest(3) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7days 30min 10s", 606_610),
        ("1y", 31_557_600),
        ("2months", 5_260_032),
        ("1M 1m", 2_630_076),
        ("1M", 2_630_016),
        ("1year2wks", 32_767_200),
    ],
)
async def test_lifetimes_are_read_as_slatedbs_command_line_reads_them(text, seconds):
    async with admin_of() as (admin, _, clock):
        clock.ms = 5_000
        assert (await admin.checkpoints.create(text)).expire_s == 5 + seconds


async def test_what_a_checkpoint_alone_keeps_leaves_out_what_others_keep_or_own():
    first = manifest(tree((2, 1), (1,)))
    async with admin_of(first) as (admin, store, clock):
        made = await admin.checkpoints.create()
        same = await admin.checkpoints.create("10s")
        assert (await admin.checkpoints.exclusive_ssts(made.id)).ssts == ()
        stored = await ManifestStore(store, "db", Env.system()).load()
        newest = replace(first.tree, l0=first.tree.l0[:1])
        await stored.apply(lambda current: replace(current.value, tree=newest))
        assert (await admin.checkpoints.exclusive_ssts(made.id)).ssts == ()  # the other one keeps it too
        clock.ms = same.expire_s * 1000
        kept = await admin.checkpoints.exclusive_ssts(made.id)
        assert [sst.id for sst in kept.ssts] == [first.tree.l0[1].sst.id]
        assert kept.size_bytes == first.tree.l0[1].sst.estimated_size_bytes > 0
