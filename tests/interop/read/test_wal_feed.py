"""A feed returns every change in WALs that SlateDB 0.17 wrote, and reports a wrong WAL store."""

import json
from typing import Any

import anyio
import pytest

from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import Edge
from shale.engine.wal.feed.reading import OnGap, read_part
from shale.env import Env
from shale.errors import InvalidDbState
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.local_store.adapter import LocalStore
from tests.golden_files import FIXTURES


def logs() -> list[Any]:
    """Return every database with recorded contents of its WAL."""
    return [
        pytest.param(path.parent.name, root, expected["wal"], id=f"{path.parent.name}/{root}")
        for path in sorted(FIXTURES.glob("*/contents.json"))
        for root, expected in json.loads(path.read_text()).get("dbs", {}).items()
        if "wal" in expected
    ]


@pytest.mark.parametrize(("case", "root", "wal"), logs())
def test_every_change_of_the_log(case: str, root: str, wal: dict[str, list[list[Any]]]) -> None:
    """From the earliest offset all changes are returned, after the latest none."""

    async def main() -> None:
        store, env = LocalStore(FIXTURES / case), Env.system()
        place = FIXTURES / case / "walstore"
        files = WalStore(LocalStore(place) if place.exists() else store, root)
        feed = WalFeed(files, ManifestStore(store, root, env), env, on_gap=OnGap.SKIP)
        begun = await feed.begin(Edge.EARLIEST)
        given = [
            (wal_id, seq)
            for part in await feed.plan(begun, await feed.end(begun))
            async for wal_id, rows in read_part(files, part, env)
            for seq in rows.seq.tolist()
        ]
        assert given == [(int(wal_id), row[3]) for wal_id in sorted(wal, key=int) for row in wal[wal_id]]
        latest = await feed.begin(Edge.LATEST)
        assert await feed.plan(latest, await feed.end(latest)) == ()

    anyio.run(main)


def test_a_log_in_a_store_of_its_own_is_missed() -> None:
    """The manifest has version 2, which does not name the WAL store."""

    async def main() -> None:
        store, env = LocalStore(FIXTURES / "separate_wal_store"), Env.system()
        feed = WalFeed(WalStore(store, "db"), ManifestStore(store, "db", env), env)
        with pytest.raises(InvalidDbState, match=r"does not exist, .*name it with wal_store"):
            await feed.begin(Edge.LATEST)

    anyio.run(main)
