"""A number of a manifest that has no successor is an error when the database is opened, not when it is written."""

from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

import shale
from shale.env import Env
from shale.errors import CorruptionError
from shale.format.manifest import encode_manifest
from shale.format.names import manifest_key
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.types import Epoch, Manifest, Seq, WalId

TOP = 2**64 - 1
CHANGES: dict[str, Callable[[Manifest], Manifest]] = {
    "last_l0_seq": lambda it: replace(it, last_l0_seq=Seq(TOP)),
    "replay_after_wal_id": lambda it: replace(it, replay_after_wal_id=WalId(TOP)),
    "next_wal_sst_id": lambda it: replace(it, next_wal_sst_id=WalId(TOP)),
    "writer_epoch": lambda it: replace(it, writer_epoch=Epoch(TOP)),
    "compactor_epoch": lambda it: replace(it, compactor_epoch=Epoch(2**63)),
}


@pytest.mark.parametrize("field", CHANGES)
def test_the_manifest_and_the_field_are_named(field: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with shale.Db.open("db", store=store) as db:
            await db.put(b"a", b"1")
        latest = await ManifestStore(store, "db", Env.system()).read_latest()
        key = manifest_key("db", latest.id)
        await store.put(key, encode_manifest(CHANGES[field](latest.value)))
        for open_ in (shale.Db.open, shale.DbReader.open):
            with pytest.raises(CorruptionError, match=rf"{field} is \d+, which no database reaches") as raised:
                await open_("db", store=store)
            assert raised.value.path == key
        async with shale.Admin("db", store=store) as admin:
            (finding, *_) = (await admin.verify()).findings
            assert finding.object == key
            assert field in finding.what

    anyio.run(main)


def test_a_number_that_is_only_large_is_used() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with shale.Db.open("db", store=store) as db:
            await db.put(b"a", b"1")
        latest = await ManifestStore(store, "db", Env.system()).read_latest()
        large = replace(latest.value, last_l0_seq=Seq(2**63 - 1))
        await store.put(manifest_key("db", latest.id), encode_manifest(large))
        async with shale.Db.open("db", store=store) as db:
            assert (await db.put(b"b", b"2")).seq == 2**63
            assert await db.get(b"b") == b"2"

    anyio.run(main)
