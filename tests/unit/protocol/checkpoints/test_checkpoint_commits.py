"""Checkpoints in a store: what is written and told, also after conflicts, and which names and lifetimes are refused."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.errors import InvalidCheckpointLifetime, InvalidRequestError
from shale.protocol.checkpoints import (
    RESTORE_UNDO_PREFIX,
    add_checkpoint_from,
    create_checkpoint,
    delete_checkpoints,
    expire_s_after,
    parse_checkpoint_id,
    refresh_checkpoint,
    release_checkpoints,
    remove_expired_checkpoints,
    renew_checkpoint,
    replaced_versions,
    require_checkpoint_reference,
    require_name,
)
from shale.protocol.manifest_store import StoredManifest
from shale.types import Checkpoint, Epoch, Manifest, ManifestId, Seq
from shale.types.writer_sign import challenge_name
from tests.clocks import START_MS
from tests.unit.protocol.conftest import World, run

A, B, C, D = (UUID(int=number) for number in (1, 2, 3, 4))


def entry(id: UUID, *, expire_s: int = 0, name: str | None = None, at: int = 4) -> Checkpoint:  # noqa: A002
    return Checkpoint(id=id, manifest_id=ManifestId(at), expire_s=expire_s, create_s=50, name=name)


@pytest.mark.parametrize("name", [None, "", "daily", " ünï ", "writer", "writers: 5", "standby"])
def test_names_of_checkpoints(name: str | None) -> None:
    assert require_name(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (5, "name: 5 is not a text"),
        (b"daily", "is not a text"),
        ("\ud800", "cannot be written as UTF-8"),
        ("writer:5", "is reserved for a writer's own checkpoint"),
        ("writer:5?holder=x", "is reserved for a writer's own checkpoint"),
        (challenge_name(Epoch(3), "host"), "is reserved"),
    ],
)
def test_names_that_are_refused(name: object, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        require_name(name)


@pytest.mark.parametrize("value", [A, str(A), "daily", " daily "])
def test_references_of_checkpoints(value: UUID | str) -> None:
    assert require_checkpoint_reference(value) == value


@pytest.mark.parametrize(("text", "found"), [(str(A), A), (f"\t{A.hex} ", A), ("daily", None), ("", None)])
def test_an_id_in_a_text(text: str, found: UUID | None) -> None:
    assert parse_checkpoint_id(text) == found


def test_versions_that_a_restore_replaced() -> None:
    manifest = Manifest(
        checkpoints=(
            entry(A, name=f"{RESTORE_UNDO_PREFIX}7", at=7),
            entry(B, at=8),
            entry(C, name=f"my-{RESTORE_UNDO_PREFIX}", at=9),
            entry(D, name=RESTORE_UNDO_PREFIX, at=11),
        )
    )
    assert replaced_versions(manifest) == (7, 11)
    assert replaced_versions(Manifest()) == ()


@pytest.mark.parametrize(
    ("now_ms", "lifetime_ms", "expire_s"),
    [(0, 1000, 1), (999, 1, 1), (1_000, 1, 1), (1_999, 1, 2), (2**32 * 1000 - 2, 1, 2**32 - 1)],
)
def test_the_shortest_lifetimes(now_ms: int, lifetime_ms: int, expire_s: int) -> None:
    assert expire_s_after(now_ms, lifetime_ms) == expire_s


@pytest.mark.parametrize(("now_ms", "lifetime_ms"), [(0, 999), (5_000, 0), (5_000, -1), (2**32 * 1000 - 1, 1)])
def test_lifetimes_that_cannot_be_stored(now_ms: int, lifetime_ms: int) -> None:
    with pytest.raises(InvalidCheckpointLifetime, match=f"cannot live for {lifetime_ms} ms"):
        expire_s_after(now_ms, lifetime_ms)


def test_a_checkpoint_of_a_source_has_its_own_times_and_name() -> None:
    manifest = Manifest(checkpoints=(entry(A, name="daily", at=3),))
    added = add_checkpoint_from(manifest, "daily", id=B, now_ms=100_900, lifetime_ms=5_000, name="copy")
    assert added == replace(
        manifest,
        checkpoints=(
            *manifest.checkpoints,
            Checkpoint(id=B, manifest_id=ManifestId(3), expire_s=105, create_s=100, name="copy"),
        ),
    )


def test_only_the_chosen_checkpoint_is_changed() -> None:
    manifest = Manifest(checkpoints=(entry(A), entry(B), entry(C)))
    refreshed = refresh_checkpoint(manifest, B, now_ms=1_000, lifetime_ms=2_000)
    assert refreshed is not None
    assert refreshed.checkpoints == (entry(A), entry(B, expire_s=3), entry(C))
    left = delete_checkpoints(manifest, [B, D])
    assert left is not None
    assert left.checkpoints == (entry(A), entry(C))
    assert refresh_checkpoint(manifest, B, now_ms=1_000, lifetime_ms=None) is None


async def stored_in(world: World, *checkpoints: Checkpoint) -> StoredManifest:
    return await world.process().manifests.create_new(Manifest(checkpoints=checkpoints))


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [line for record in caplog.records if event in (line := record.getMessage())]


@pytest.mark.parametrize("source", [None, "daily"])
def test_a_created_checkpoint_is_the_stored_one(world: World, source: str | None) -> None:
    async def main() -> None:
        process = world.process()
        stored = await stored_in(world, entry(A, name="daily", at=1))
        made = await create_checkpoint(stored, process.env, lifetime_ms=5_000, name="copy", source=source, id=B)
        assert made == Checkpoint(
            id=B,
            manifest_id=ManifestId(2 if source is None else 1),
            expire_s=START_MS // 1000 + 5,
            create_s=START_MS // 1000,
            name="copy",
        )
        assert (await process.manifests.read_latest()).value.checkpoints == (entry(A, name="daily", at=1), made)
        assert (await create_checkpoint(stored, process.env, lifetime_ms=None)).id not in (A, B), "ids are drawn"

    run(main)


def test_a_checkpoint_after_a_conflict_pins_the_version_that_was_written(world: World) -> None:
    async def main() -> None:
        process = world.process()
        stored = await stored_in(world)
        other = await process.manifests.load()
        await other.apply(lambda current: replace(current.value, last_l0_seq=Seq(5)))
        made = await create_checkpoint(stored, process.env, lifetime_ms=None)
        assert (made.manifest_id, stored.id, stored.value.last_l0_seq) == (3, 3, 5)

    run(main)


def test_a_renewed_checkpoint_is_the_stored_one(world: World) -> None:
    async def main() -> None:
        process = world.process()
        stored = await stored_in(world, entry(A, expire_s=9), entry(B))
        renewed = await renew_checkpoint(stored, process.env, A, lifetime_ms=5_000)
        assert renewed == entry(A, expire_s=START_MS // 1000 + 5)
        assert stored.value.checkpoints == (renewed, entry(B))
        assert (await renew_checkpoint(stored, process.env, A, lifetime_ms=None)).expire_s == 0

    run(main)


def test_released_checkpoints_are_those_that_were_listed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stored = await stored_in(world, entry(A), entry(B), entry(C))
        assert await release_checkpoints(stored, iter([C, D, A])) == (C, A)
        assert (stored.id, stored.value.checkpoints) == (2, (entry(B),))
        assert await release_checkpoints(stored, [C, D]) == ()
        assert stored.id == 2

    with caplog.at_level("INFO"):
        run(main)
    lines = logged(caplog, "checkpoint.deleted")
    assert [str(id_) in line for id_, line in zip((C, A), lines, strict=True)] == [True, True]


def test_a_checkpoint_that_another_process_added_is_released_after_a_conflict(world: World) -> None:
    """What the first attempt found and another process has removed meanwhile counts, too: it may be our own write."""

    async def main() -> None:
        stored = await stored_in(world, entry(A))
        other = await world.process().manifests.load()
        await other.apply(lambda _: Manifest(checkpoints=(entry(B),)))
        assert await release_checkpoints(stored, [A, B, D]) == (A, B)
        assert stored.value.checkpoints == ()

    run(main)


@pytest.mark.parametrize(("now_ms", "expired"), [(8_999, []), (9_000, [A]), (10_000, [A, C])])
def test_expired_checkpoints_are_removed_and_told(
    world: World, now_ms: int, expired: list[UUID], caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = (entry(A, expire_s=9), entry(B), entry(C, expire_s=10))

    async def main() -> None:
        stored = await stored_in(world, *checkpoints)
        assert await remove_expired_checkpoints(stored, now_ms) == tuple(expired)
        assert stored.value.checkpoints == tuple(each for each in checkpoints if each.id not in expired)
        assert stored.id == (2 if expired else 1)

    with caplog.at_level("INFO"):
        run(main)
    assert len(logged(caplog, "checkpoint.expired")) == len(expired)
