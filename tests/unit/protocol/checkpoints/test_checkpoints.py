"""Checkpoints: docs/reference/protocol.md 9, traces T9."""

from dataclasses import replace
from uuid import UUID

import anyio
import pytest

from shale.errors import CheckpointExpired, CheckpointMissing, InvalidCheckpointLifetime, InvalidDbState
from shale.protocol.checkpoints import (
    add_checkpoint,
    add_checkpoint_from,
    create_checkpoint,
    delete_checkpoints,
    expire_checkpoints,
    expire_s_after,
    list_checkpoints,
    refresh_checkpoint,
    release_checkpoints,
    remove_expired_checkpoints,
    renew_checkpoint,
    resolve_checkpoint,
)
from shale.types import Checkpoint, Manifest, ManifestId
from tests.unit.protocol.conftest import World, run

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
NOW_MS = 100_900


def entry(id: UUID, *, expire_s: int = 0, name: str | None = None, manifest_id: int = 4) -> Checkpoint:  # noqa: A002
    return Checkpoint(id=id, manifest_id=ManifestId(manifest_id), expire_s=expire_s, create_s=50, name=name)


def holding(*checkpoints: Checkpoint) -> Manifest:
    return replace(Manifest(), checkpoints=checkpoints)


def test_a_checkpoint_names_the_version_that_contains_it() -> None:
    added = add_checkpoint(holding(entry(A)), 7, id=B, now_ms=NOW_MS, lifetime_ms=None, name="daily")
    assert added is not None
    expected = Checkpoint(id=B, manifest_id=ManifestId(7), expire_s=0, create_s=100, name="daily")
    assert added.checkpoints == (entry(A), expected)
    assert add_checkpoint(added, 8, id=B, now_ms=NOW_MS, lifetime_ms=None) is None


def test_a_half_built_database_has_nothing_to_pin() -> None:
    with pytest.raises(InvalidDbState):
        add_checkpoint(replace(Manifest(), initialized=False), 7, id=B, now_ms=NOW_MS, lifetime_ms=None)


@pytest.mark.parametrize(
    ("now_ms", "lifetime_ms", "expire_s"),
    [
        pytest.param(100_900, 1_500, 102, id="T9.d: whole seconds, rounded down"),
        pytest.param(100_900, None, 0, id="for ever"),
        pytest.param(0, (2**32 - 1) * 1000, 2**32 - 1, id="the last second there is"),
    ],
)
def test_lifetimes(now_ms: int, lifetime_ms: int | None, expire_s: int) -> None:
    assert expire_s_after(now_ms, lifetime_ms) == expire_s


@pytest.mark.parametrize(("now_ms", "lifetime_ms"), [(1_000, 2**32 * 1000), (1_000, 0), (1_000, -5), (0, 500)])
def test_impossible_lifetimes(now_ms: int, lifetime_ms: int) -> None:
    """They neither wrap to "never" nor start in the past."""
    with pytest.raises(InvalidCheckpointLifetime):
        expire_s_after(now_ms, lifetime_ms)


def test_from_a_source_pins_the_same_version() -> None:
    source = entry(A, manifest_id=3)
    added = add_checkpoint_from(holding(source), A, id=B, now_ms=NOW_MS, lifetime_ms=5_000)
    assert added is not None
    assert (added.checkpoints[1].manifest_id, added.checkpoints[1].expire_s) == (3, 105)
    again = delete_checkpoints(added, [A])
    assert again is not None
    assert add_checkpoint_from(again, A, id=B, now_ms=NOW_MS, lifetime_ms=None) is None


@pytest.mark.parametrize("source", [(), (entry(A, expire_s=100),)], ids=["gone", "expired"])
def test_no_source(source: tuple[Checkpoint, ...]) -> None:
    with pytest.raises(CheckpointMissing) as caught:
        add_checkpoint_from(holding(*source), A, id=B, now_ms=NOW_MS, lifetime_ms=None)
    assert caught.value.id == A


def test_an_expired_checkpoint_is_said_to_have_expired() -> None:
    manifest = holding(entry(A, expire_s=100), entry(B, expire_s=160, name="n"), entry(C, expire_s=90, name="n"))
    for wanted, words in ((A, f"checkpoint {A} expired at 1970-01-01T00:01:40Z"), ("n", "'n' expired at .*00:02:40Z")):
        with pytest.raises(CheckpointExpired, match=words):
            resolve_checkpoint(manifest, wanted, 200_000)
    with pytest.raises(CheckpointMissing, match="does not exist") as caught:
        resolve_checkpoint(holding(), A, 200_000)
    assert not isinstance(caught.value, CheckpointExpired)


def test_expired_is_at_or_before_now() -> None:
    manifest = holding(entry(A, expire_s=100), entry(B, expire_s=101), entry(C))
    left = expire_checkpoints(manifest, 100_999)
    assert left is not None
    assert [checkpoint.id for checkpoint in left.checkpoints] == [B, C]
    assert expire_checkpoints(left, 100_999) is None


def test_refresh_and_delete_are_idempotent() -> None:
    manifest = holding(entry(A), entry(B))
    refreshed = refresh_checkpoint(manifest, A, now_ms=NOW_MS, lifetime_ms=10_000)
    assert refreshed is not None
    assert refreshed.checkpoints == (entry(A, expire_s=110), entry(B))
    assert refresh_checkpoint(refreshed, A, now_ms=NOW_MS, lifetime_ms=10_000) is None
    with pytest.raises(CheckpointMissing):
        refresh_checkpoint(manifest, C, now_ms=NOW_MS, lifetime_ms=None)
    assert delete_checkpoints(manifest, [C]) is None
    deleted = delete_checkpoints(manifest, [A, B])
    assert deleted is not None
    assert deleted.checkpoints == ()


def test_names() -> None:
    manifest = holding(entry(A), entry(B, name="x"), entry(C, name=""))
    assert [checkpoint.id for checkpoint in list_checkpoints(manifest)] == [A, B, C]
    assert [checkpoint.id for checkpoint in list_checkpoints(manifest, "")] == [A, C]
    assert [checkpoint.id for checkpoint in list_checkpoints(manifest, "x")] == [B]


def test_t9a_concurrent_creates_name_different_versions(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await a.manifests.create_new(Manifest())
        created: list[Checkpoint] = []
        mine, others = await a.manifests.load(), await b.manifests.load()

        async def create(stored: object, env: object) -> None:
            created.append(await create_checkpoint(stored, env, lifetime_ms=None))  # type: ignore[arg-type]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create, mine, a.env)
            tasks.start_soon(create, others, b.env)
        assert sorted(checkpoint.manifest_id for checkpoint in created) == [2, 3]
        for checkpoint in created:
            pinned = await a.manifests.read(checkpoint.manifest_id)
            assert pinned is not None
            assert pinned.checkpoint(checkpoint.id) == checkpoint

    run(main)


def test_t9b_expiry_and_a_new_checkpoint_do_not_disturb_each_other(world: World) -> None:
    async def main() -> None:
        a, gc = world.process(), world.process()
        await a.manifests.create_new(Manifest())
        stored = await a.manifests.load()
        old = await create_checkpoint(stored, a.env, lifetime_ms=5_000)
        collecting = await gc.manifests.load()
        world.clock.sleep(10)
        new = await create_checkpoint(stored, a.env, lifetime_ms=60_000)
        assert await remove_expired_checkpoints(collecting, world.clock.now_ms()) == (old.id,)
        latest = (await a.manifests.read_latest()).value
        assert [checkpoint.id for checkpoint in latest.checkpoints] == [new.id]
        assert await remove_expired_checkpoints(collecting, world.clock.now_ms()) == ()
        assert (await gc.manifests.read_latest()).id == collecting.id

    run(main)


def test_t9c_the_source_is_deleted_between_read_and_commit(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await a.manifests.create_new(Manifest())
        source = await create_checkpoint(await a.manifests.load(), a.env, lifetime_ms=None)
        reading = await b.manifests.load()
        await release_checkpoints(await a.manifests.load(), [source.id])
        with pytest.raises(CheckpointMissing):
            await create_checkpoint(reading, b.env, lifetime_ms=None, source=source.id)

    run(main)


def test_renew_and_release(world: World) -> None:
    async def main() -> None:
        a = world.process()
        stored = await a.manifests.create_new(Manifest())
        checkpoint = await create_checkpoint(stored, a.env, lifetime_ms=10_000)
        world.clock.sleep(5)
        renewed = await renew_checkpoint(stored, a.env, checkpoint.id, lifetime_ms=10_000)
        assert (renewed.expire_s, renewed.manifest_id) == (checkpoint.expire_s + 5, checkpoint.manifest_id)
        await release_checkpoints(stored, [checkpoint.id])
        before = stored.id
        await release_checkpoints(stored, [checkpoint.id])
        assert stored.id == before
        with pytest.raises(CheckpointMissing):
            await renew_checkpoint(stored, a.env, checkpoint.id, lifetime_ms=None)

    run(main)
