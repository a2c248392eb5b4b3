"""A clone of a clone, and other objects with the ids of the SSTs that they reference."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from random import Random

import shale
from shale.admin.clones import source
from shale.clones.request import CloneSource
from shale.env import Env
from shale.format.names import sst_key
from shale.protocol.manifest_store import ManifestStore
from shale.sst.paths import SstPaths
from shale.store.connect import open_store
from shale.store.port import ObjectStore
from shale.types import EVERYTHING, Manifest

Rows = dict[bytes, bytes]
PATHS = ("g", "p", "c")
CUT = b"key-50"
"""The youngest shows the keys below."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """``g``, its clone ``p``, and ``c``, a clone of a range of ``p``; each has its own rows and SSTs."""

    url: str
    rows: Mapping[str, Rows]

    def place(self, path: str) -> str:
        """Return the URL of one of the databases."""
        return f"{self.url.rstrip('/')}/{path}"


async def written(url: str) -> Lineage:
    """Create them, and put wrong objects at the paths that a reader with a wrong resolution of ids would use."""
    store = open_store(url)
    lineage = Lineage(url, {"g": rows_of("g", 0, 100), "p": {}, "c": {}})
    await fill(url, "g", lineage.rows["g"])
    await clone(url, "p", source("g"))
    lineage.rows["p"].update(lineage.rows["g"] | (own := rows_of("p", 20, 80)))
    await fill(url, "p", own)
    await clone(url, "c", source("p", end=CUT))
    lineage.rows["c"].update({key: value for key, value in lineage.rows["p"].items() if key < CUT})
    lineage.rows["c"].update(own := rows_of("c", 40, 60))
    await fill(url, "c", own)
    await _mislead(store)
    return lineage


def rows_of(name: str, first: int, end: int) -> Rows:
    """Return incompressible rows that name their database."""
    rng = Random(name)
    return {b"key-%02d" % number: name.encode() + rng.randbytes(200) for number in range(first, end)}


async def fill(url: str, path: str, rows: Rows) -> None:
    """Write two L0s."""
    items = [*rows.items()]
    async with shale.Db.open(path, store=url, enforce_visible_range=EVERYTHING) as db:
        for half in (items[::2], items[1::2]):
            for key, value in half:
                await db.put(key, value)
            await db.flush("wal")
            await db.flush("memtable")


async def clone(url: str, path: str, *sources: CloneSource) -> None:
    """Create a clone in the same store."""
    async with shale.Admin(path, store=url) as admin:
        await admin.clones.create(*sources)


async def manifest_of(store: ObjectStore, path: str) -> Manifest:
    """Return the newest manifest of a database."""
    return (await ManifestStore(store, path, Env.system()).read_latest()).value


async def _mislead(store: ObjectStore) -> None:
    """Put an unreadable object with the id and size of every SST in both of the other databases."""
    manifest = await manifest_of(store, "c")
    paths = SstPaths.of("c", manifest)
    for sst_id, other in product(manifest.ssts(), PATHS):
        right, wrong = paths.key(sst_id), sst_key(other, sst_id)
        if right != wrong:
            meta = await store.head(right)
            assert meta is not None
            assert await store.head(wrong) is None
            await store.put(wrong, bytes(meta.size))
