"""Verification in parts: each object is in exactly one part, which finds its damage."""

import anyio
import pytest

import shale
from shale.admin.verify.inventory import Inventory, read_inventory
from shale.admin.verify.parts import PartResult, WalSeqs, plan_parts, verify_part, wal_disorder
from shale.format.names import wal_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.store.memory import MemoryStore
from shale.types import Compression, Entry, Manifest
from tests.unit.admin.verify.test_inventory import ENV


async def database() -> MemoryStore:
    store = MemoryStore()
    async with shale.Db.open("db", store=store) as db:
        for number in range(5):
            await db.put(b"key-%d" % number, bytes(100))
            await db.flush("memtable" if number % 2 else "wal")
    return store


async def checked(store: MemoryStore, part_bytes: int) -> tuple[Inventory, list[PartResult]]:
    inventory = await read_inventory(store, None, "db", ENV)
    parts = list(plan_parts(inventory, part_bytes=part_bytes, items_max=2))
    wal = WalStore(store, "db")
    assert [sst for part in parts for sst in part.ssts] == list(inventory.ssts)
    assert all(len(part.ssts) + len(part.wal) <= 2 for part in parts)
    return inventory, [await verify_part(part, store, wal, ENV) for part in parts]


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_sound_database_in_parts(part_bytes: int) -> None:
    async def main() -> None:
        inventory, results = await checked(await database(), part_bytes)
        assert [finding for result in results for finding in result.findings] == []
        assert not any(result.gone for result in results)
        seqs = [each for result in results for each in result.wal]
        assert [each.first for each in seqs] == [1, 2, 3, 4, 5]
        assert len(inventory.ssts) >= 2
        assert sum(result.rows for result in results) == 5 + 5

    anyio.run(main)


def test_each_damage_is_found_in_exactly_one_part() -> None:
    async def main() -> None:
        store = await database()
        inventory = await read_inventory(store, None, "db", ENV)
        first, second = inventory.ssts[:2]
        await store.delete(first.path)
        got = await store.get(second.path)
        assert got is not None
        await store.put(second.path, bytes(got.data[:10]) + b"?" + bytes(got.data[11:]))
        _, results = await checked(store, 1 << 20)
        found = [finding for result in results for finding in result.findings]
        assert {finding.object for finding in found} == {first.path, second.path}
        assert [key for result in results for key in result.gone] == [first.path]

    anyio.run(main)


def test_rows_above_the_sequence_bound_and_files_out_of_order() -> None:
    async def main() -> None:
        store = await database()
        _, results = await checked(store, 1 << 20)
        wal = WalStore(store, "db")
        inventory = await read_inventory(store, None, "db", ENV)
        (part, *_) = plan_parts(inventory, part_bytes=1 << 20, items_max=2)
        lowered = type(part)(ssts=tuple(type(n)(n.path, n.sst, 0) for n in part.ssts))
        assert "readers see none above 0" in str((await verify_part(lowered, store, wal, ENV)).findings[0])
        last = max(each.wal_id for result in results for each in result.wal)
        zombie = build_wal_sst(rows_from_entries([Entry(b"z", b"", 2, 0)]), Compression.NONE)
        await store.put(wal_key("db", last + 1), zombie)
        _, results = await checked(store, 1 << 20)
        seqs = [each for result in results for each in result.wal]
        (disorder,) = wal_disorder(reversed(seqs), wal, Manifest())
        assert str(disorder) == f"{wal_key('db', last + 1)}: it begins with seq 2; file {last} before it ends with 5"
        assert list(wal_disorder([WalSeqs(1, 1, 1), WalSeqs(3, 2, 9)], wal, Manifest())) == []

    anyio.run(main)
