"""A database with every kind of object and a clone that references it, for tests that damage them."""

import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import shale
from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.admin.verify.report import VerifyReport
from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.env import Env, InlineCpu, SystemClock
from shale.format.compactions import encode_compactions
from shale.format.manifest import encode_manifest
from shale.format.names import boundary_key, compactions_key, manifest_key, sst_key, wal_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.sst.verify.sst import VerifyDepth
from shale.store.memory import MemoryStore
from shale.types import (
    Compaction,
    Compactions,
    CompactionStatus,
    Entry,
    Epoch,
    Manifest,
    RunId,
    Seq,
    SortedRun,
    Sst,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
)

PATH, CLONE = "db", "clone"
SST_OPTIONS = SstOptions(block_size_bytes=128, min_filter_keys=1)
OLD_MS = 1_600_000_000_000
NAMED = UUID(int=7)


class Harness:
    """One store; ``db``: a run of two SSTs, three L0s, two checkpoints, a WAL, compactions; ``clone``: of all that."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.env = Env(SystemClock(), random.Random(1), InlineCpu())

    @classmethod
    async def build(cls) -> "Harness":
        """Build an undamaged database; it is built once and copied."""
        harness = cls()
        if not _BLUEPRINT:
            _BLUEPRINT.append(await cls._built())
        harness.store.objects.update(_BLUEPRINT[0].store.objects)
        return harness

    @classmethod
    async def _built(cls) -> "Harness":
        harness = cls()
        low, high = [await harness.sst(first, OLD_MS + place) for place, first in enumerate((b"a", b"m"))]
        runs = (SortedRun(id=RunId(0), ssts=(SstView.identity(low), SstView.identity(high))),)
        await harness.manifests().create_new(Manifest(tree=Tree(compacted=runs), last_l0_seq=Seq(100)))
        entry = Compaction(
            id=Ulid.from_parts(OLD_MS + 10, 1), spec=TieredSpec(destination=RunId(0)), status=CompactionStatus.COMPLETED
        )
        await CompactionsStore(harness.store, PATH, harness.env).create_new(Compactions(entries=(entry,)))
        async with shale.Db.open(PATH, store=harness.store, env=harness.env, min_filter_keys=1) as db:
            for number in range(3):
                for letter in range(26):
                    await db.put(bytes([97 + letter]) * 3, b"%d" % number * 20)
                await db.flush("wal")
                await db.flush("memtable")
                if number < 2:
                    await db.checkpoint(name=f"c{number}")
        async with shale.Db.open(PATH, store=harness.store, env=harness.env) as db:
            for number in range(3):
                await db.put(b"in the log %d" % number, b"only")
                await db.flush("wal")
            await db.close("wal")
        request = CloneRequest(path=CLONE, sources=(CloneSource(path=PATH),))
        await create_clone(DatabaseCatalog(harness.store, harness.env), request)
        return harness

    async def verify(self, path: str = PATH, *, depth: VerifyDepth = VerifyDepth.QUICK) -> VerifyReport:
        checked = VerifyTarget(store=self.store, wal_store=None, root=path, env=self.env)
        return await verify_database(checked, VerifyOptions(depth=depth))

    def manifests(self, path: str = PATH) -> ManifestStore:
        return ManifestStore(self.store, path, self.env)

    async def latest(self, path: str = PATH) -> tuple[int, Manifest]:
        found = await self.manifests(path).read_latest()
        return found.id, found.value

    async def sst(self, first: bytes, ms: int) -> Sst:
        """Write an SST of ten rows that no view references."""
        rows = [Entry(first + b"%02d" % number, b"value" * 4, 10 + number, 0) for number in range(10)]
        data, info = build_sst(rows_from_entries(rows), SST_OPTIONS)
        return await self.put_sst(bytes(data), Sst(id=Ulid.from_parts(ms, 1), info=info))

    async def put_sst(self, data: bytes, sst: Sst) -> Sst:
        await self.store.put(sst_key(PATH, sst.id), data)
        return sst

    async def rewrite(self, change: Callable[[Manifest], Manifest], path: str = PATH, version: int = 0) -> str:
        """Change a version, by default the newest, in a way that no process would; return its key."""
        latest_id, manifest = await self.latest(path)
        if version:
            found = await self.manifests(path).read(version)
            assert found is not None
            latest_id, manifest = version, found
        key = manifest_key(path, latest_id)
        await self.store.put(key, encode_manifest(change(manifest)))
        return key

    async def rewrite_tree(self, change: Callable[[Tree], Tree], path: str = PATH) -> str:
        return await self.rewrite(lambda manifest: replace(manifest, tree=change(manifest.tree)), path)

    async def compacting(self, entry: Compaction, *, epoch: int = 0) -> str:
        """Write a compactions file with this entry; return its key."""
        value = Compactions(compactor_epoch=Epoch(epoch), entries=(entry,))
        await self.store.put(compactions_key(PATH, 2), encode_compactions(value))
        return compactions_key(PATH, 2)

    async def edit(self, key: str, change: Callable[[bytes], bytes]) -> str:
        got = await self.store.get(key)
        assert got is not None
        await self.store.put(key, change(bytes(got.data)))
        return key

    async def flip(self, key: str, place: int) -> str:
        """Change one bit of an object."""

        def change(data: bytes) -> bytes:
            changed = bytearray(data)
            changed[place] ^= 4
            return bytes(changed)

        return await self.edit(key, change)

    async def gone(self, key: str) -> str:
        await self.store.delete(key)
        return key

    async def run_sst(self) -> Sst:
        """Return the first SST of the run."""
        return (await self.latest())[1].tree.compacted[0].ssts[0].sst

    async def needed_wal(self) -> list[str]:
        """Return the files that replay needs, oldest first, without fences."""
        manifest = (await self.latest())[1]
        ids = range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)
        keys = [wal_key(PATH, wal_id) for wal_id in ids]
        return [key for key in keys if (meta := await self.store.head(key)) is not None and meta.size]

    def boundary(self, resource: str = "manifest") -> str:
        return boundary_key(PATH, resource)


_BLUEPRINT: list[Harness] = []
