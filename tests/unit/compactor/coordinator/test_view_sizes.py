"""Policies see the size of what a view shows of its SST."""

from collections.abc import Iterable

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.sst.paths import SstPaths
from shale.store.memory import MemoryStore
from shale.types import Compactions, CompactionSpec, KeyRange, Manifest
from shale_compactor.coordinator.view_sizes import MeasuredScheduler, ViewSizes

VALUE = bytes(1000)


async def clone_of(store: MemoryStore, end: bytes) -> Manifest:
    """Return the manifest of a clone that shows the keys below ``end`` of one SST with 1000 rows of 1000 bytes."""
    async with shale.Db.open("p", store=store) as db:
        for number in range(1000):
            await db.put(b"%03d" % number, VALUE)
        await db.flush("memtable")
    async with shale.Admin("c", store=store) as admin:
        await admin.clones.create(source("p", end=end))
    return (await ManifestStore(store, "c", Env.system()).read_latest()).value


def total(manifest: Manifest) -> int:
    return sum(view.sst.estimated_size_bytes for view in manifest.views())


@pytest.mark.parametrize(("end", "share"), [(b"100", 0.1), (b"500", 0.5), (b"900", 0.9)])
def test_a_cut_view_has_the_size_of_its_blocks(end: bytes, share: float) -> None:
    async def main() -> None:
        store = MemoryStore()
        manifest = await clone_of(store, end)
        sizes = ViewSizes(store, "c")
        assert sizes.applied(manifest) is manifest
        await sizes.measure(manifest)
        assert total(sizes.applied(manifest)) == pytest.approx(share * total(manifest), rel=0.1)

    anyio.run(main)


def test_an_index_is_read_once_and_views_that_are_gone_are_forgotten() -> None:
    async def main() -> None:
        store = MemoryStore()
        manifest = await clone_of(store, b"500")
        sizes = ViewSizes(store, "c")
        await sizes.measure(manifest)
        applied = sizes.applied(manifest)
        key = SstPaths.of("c", manifest).key(next(iter(manifest.ssts())))
        await store.delete(key)
        await sizes.measure(manifest)
        assert sizes.applied(manifest) == applied
        await sizes.measure(Manifest())
        await sizes.measure(manifest)
        assert total(sizes.applied(manifest)) == total(manifest), "what cannot be read has the size of the whole"

    anyio.run(main)


def test_whole_views_are_not_read() -> None:
    async def main() -> None:
        manifest = await clone_of(MemoryStore(), b"999z")
        sizes = ViewSizes(MemoryStore(), "c")
        await sizes.measure(manifest)
        assert sizes.applied(manifest) is manifest

    anyio.run(main)


def test_a_policy_gets_the_manifest_with_sizes() -> None:
    class Policy:
        seen: Manifest | None = None

        def plan(self, manifest: Manifest, compactions: Compactions) -> Iterable[CompactionSpec]:
            self.seen = manifest
            return ()

    policy, sized = Policy(), Manifest(segment_extractor_name=str(KeyRange()))
    assert list(MeasuredScheduler(policy, lambda _: sized).plan(Manifest(), Compactions())) == []
    assert policy.seen is sized
