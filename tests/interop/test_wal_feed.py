"""A feed gives every change in the logs that SlateDB 0.17 wrote, and says so where it looks in the wrong place."""

import json
from typing import Any

import anyio
import pytest

from shale.engine.wal_feed.feed import WalFeed
from shale.engine.wal_feed.offset import Edge
from shale.engine.wal_feed.reading import OnGap, read_part
from shale.env import Env
from shale.errors import InvalidDbState
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.store.local import LocalStore
from tests.interop.files import FIXTURES


def logs() -> list[Any]:
    """Every database of which it is known what its log holds."""
    return [
        pytest.param(path.parent.name, root, expected["wal"], id=f"{path.parent.name}/{root}")
        for path in sorted(FIXTURES.glob("*/contents.json"))
        for root, expected in json.loads(path.read_text()).get("dbs", {}).items()
        if "wal" in expected
    ]


@pytest.mark.parametrize(("case", "root", "wal"), logs())
def test_every_change_of_the_log(case: str, root: str, wal: dict[str, list[list[Any]]]) -> None:
    """From the earliest on; nothing behind the latest."""

    async def main() -> None:
        store, env = LocalStore(FIXTURES / case), Env.system()
        place = FIXTURES / case / "walstore"
        files = WalStore(LocalStore(place) if place.exists() else store, root, env)
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
    """Its manifest is of version 2, which does not say where it is."""

    async def main() -> None:
        store, env = LocalStore(FIXTURES / "separate_wal_store"), Env.system()
        feed = WalFeed(WalStore(store, "db", env), ManifestStore(store, "db", env), env)
        with pytest.raises(InvalidDbState, match=r"is not there, .*name it with wal_store"):
            await feed.begin(Edge.LATEST)

    anyio.run(main)
