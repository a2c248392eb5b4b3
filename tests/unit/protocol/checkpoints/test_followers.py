"""The checkpoint of a WAL follower: when it moves, when it is renewed, and what it pins."""

from dataclasses import replace
from uuid import UUID

import pytest

from shale.protocol.followers import WalBounds, advance_follower, follower_name, oldest_followed_wal_id
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Manifest, ManifestId, WalId

OLD, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
NOW_MS, LIFETIME_MS = 1_000_000, 100_000
FRESH_S, STALE_S, GONE_S = 1_090, 1_040, 1_000


def state(replay_after: int, *checkpoints: Checkpoint) -> Manifest:
    return replace(
        Manifest(),
        replay_after_wal_id=WalId(replay_after),
        next_wal_sst_id=WalId(replay_after + 2),
        checkpoints=checkpoints,
    )


def entry(
    id: UUID = OLD,  # noqa: A002
    *,
    name: str = follower_name("orders"),
    expire_s: int = FRESH_S,
    at: int = 4,
) -> Checkpoint:
    return Checkpoint(id=id, manifest_id=ManifestId(at), expire_s=expire_s, create_s=900, name=name)


def moved(manifest: Manifest, read: int, pinned: WalBounds | None = None) -> Manifest | None:
    return advance_follower(
        Versioned(8, manifest),
        id=NEW,
        name="orders",
        read_wal_id=read,
        pinned=pinned,
        now_ms=NOW_MS,
        lifetime_ms=LIFETIME_MS,
    )


MOVED = entry(NEW, expire_s=1_100, at=9)
MOVED = replace(MOVED, create_s=1_000)
BEFORE = WalBounds(3, 5)


@pytest.mark.parametrize(
    ("manifest", "read", "pinned", "checkpoints"),
    [
        pytest.param(state(5), 7, None, (MOVED,), id="the first"),
        pytest.param(state(5, entry()), 7, BEFORE, (MOVED,), id="the log moved on and was read"),
        pytest.param(state(7, entry()), 7, BEFORE, (MOVED,), id="read up to the replay point"),
        pytest.param(state(5, entry()), 7, None, (MOVED,), id="after a restart, what it keeps is not known"),
        pytest.param(state(5, entry()), 7, WalBounds(5, 7), None, id="nothing new"),
        pytest.param(state(8, entry()), 7, BEFORE, None, id="after the replay point it stays"),
        pytest.param(
            state(8, entry(expire_s=STALE_S)), 7, BEFORE, (entry(expire_s=1_100),), id="and is renewed at half its life"
        ),
        pytest.param(state(8, entry(expire_s=GONE_S)), 7, BEFORE, (MOVED,), id="what has expired keeps nothing"),
        pytest.param(state(8, entry(expire_s=1_051)), 7, BEFORE, None, id="more than half of its life is left"),
        pytest.param(
            state(8, entry(expire_s=1_050)), 7, BEFORE, (entry(expire_s=1_100),), id="exactly half of its life is left"
        ),
        pytest.param(state(8, entry(expire_s=0)), 7, BEFORE, None, id="one that never expires is not renewed"),
        pytest.param(
            state(8, entry(), entry(OTHER, expire_s=STALE_S)),
            7,
            BEFORE,
            (entry(expire_s=1_100), entry(OTHER, expire_s=1_100)),
            id="of two, one is to be renewed",
        ),
        pytest.param(
            state(8, entry(OTHER, name="nightly", expire_s=STALE_S), entry(expire_s=STALE_S)),
            7,
            BEFORE,
            (entry(OTHER, name="nightly", expire_s=STALE_S), entry(expire_s=1_100)),
            id="only its own is renewed",
        ),
        pytest.param(state(5, entry(expire_s=STALE_S)), 7, WalBounds(5, 7), (entry(expire_s=1_100),), id="idle"),
        pytest.param(state(5, entry()), 7, WalBounds(5, 8), (MOVED,), id="the end moved on"),
        pytest.param(
            state(5, entry(OTHER, name="changes:others"), entry()),
            7,
            BEFORE,
            (entry(OTHER, name="changes:others"), MOVED),
            id="others stay",
        ),
        pytest.param(state(5, MOVED), 7, BEFORE, None, id="it has landed before"),
    ],
)
def test_moves(
    manifest: Manifest, read: int, pinned: WalBounds | None, checkpoints: tuple[Checkpoint, ...] | None
) -> None:
    after = moved(manifest, read, pinned)
    assert (None if after is None else after.checkpoints) == checkpoints
    if after is not None:
        assert replace(after, checkpoints=()) == replace(manifest, checkpoints=())


def test_the_slowest_follower_counts() -> None:
    pinned = {4: state(10), 5: state(3), 6: state(1)}
    latest = state(20, entry(at=4), entry(OTHER, name="changes:others", at=5), entry(NEW, name="nightly", at=6))
    assert oldest_followed_wal_id(latest, pinned) == 3
    assert oldest_followed_wal_id(state(20, entry(name="nightly")), pinned) is None
