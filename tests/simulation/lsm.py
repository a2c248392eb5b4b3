"""A database of real SSTs for simulations: a writer that only flushes, compactors, and the rule that no row is lost."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from shale.compaction.size_tiered import SizeTiered
from shale.errors import ObjectVersionExists
from shale.format.block import decode_blocks
from shale.format.index import decode_index
from shale.format.manifest import decode_manifest
from shale.format.names import parse_manifest_key, sst_key
from shale.format.section import open_section
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.protocol.manifest_store import WRITER, ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.rebase import rebase_writer
from shale.protocol.transactional import Fenceable, Stored
from shale.protocol.versioned import Versioned
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.testing.database_rules import DatabaseRules
from shale.testing.history import Mutation
from shale.testing.simulation import SimProcess, Simulation
from shale.types import FLAG_TOMBSTONE, Compactions, Entry, Manifest, Seq, Sst, SstView, WalId
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.process import Compactor, CompactorOptions
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker

if TYPE_CHECKING:
    from shale.protocol.manifest_store import FenceableManifest

ROOT = "db"
SST = SstOptions(block_size_bytes=128, min_filter_keys=4)
SCHEDULER = SizeTiered(min_compaction_sources=3, max_compaction_sources=4)
OPTIONS = CompactorOptions(
    coordinator=CoordinatorOptions(scheduler=SCHEDULER),
    worker=WorkerOptions(persist_every_sst=True),
    executor=ExecutorOptions(sst=SST, max_sst_size_bytes=256, max_subcompactions=2),
    take_over=True,
)

CALM = replace(
    OPTIONS,
    coordinator=CoordinatorOptions(scheduler=SCHEDULER, poll_interval_s=30.0, worker_heartbeat_timeout_s=120.0),
    worker=WorkerOptions(compactions_poll_interval_s=30.0),
)
"""For rows that take hours of virtual time, whose seconds are paid with requests."""


def manifests_of(process: SimProcess) -> ManifestStore:
    return ManifestStore(process.store, ROOT, process.env, process.metrics, ProtocolOptions(component=process.role))


def compactions_of(process: SimProcess) -> CompactionsStore:
    return CompactionsStore(process.store, ROOT, process.env, process.metrics, ProtocolOptions(component=process.role))


async def open_database(manifests: ManifestStore) -> Stored[Manifest]:
    if await manifests.try_read_latest() is None:
        try:
            return await manifests.create_new(Manifest())
        except ObjectVersionExists:
            pass
    return await manifests.load()


async def writer(
    process: SimProcess,
    *,
    flushes: int,
    pause_s: float = 20.0,
    keys: int = 8,
    deletes: float = 0.3,
    snapshots: bool = True,
    rows_max: int = 6,
) -> None:
    """Flush tables of a few rows to L0, with overwrites and tombstones."""
    owner = await Fenceable.claim(await open_database(manifests_of(process)), WRITER)
    for _ in range(flushes):
        await anyio.sleep(process.rng.uniform(0, pause_s))
        await flush(process, owner, keys=keys, deletes=deletes, snapshots=snapshots, rows_max=rows_max)


async def flush(
    process: SimProcess,
    owner: "FenceableManifest",
    *,
    keys: int = 8,
    deletes: float = 0.3,
    snapshots: bool = False,
    rows_max: int = 6,
) -> None:
    """One L0, committed however often others are first."""
    local = owner.prepare_dirty().value
    entries = _rows(process.rng, local.last_l0_seq, keys, deletes, rows_max)
    data, info = build_sst(rows_from_entries(entries), SST)
    sst_id = process.env.ids.ulid(newest_l0_ms(local))
    await process.store.put(sst_key(ROOT, sst_id), data)
    view = SstView.identity(Sst(id=sst_id, info=info))
    last_seq = Seq(max(entry.seq for entry in entries))
    oldest_snapshot = process.rng.randint(local.recent_snapshot_min_seq, last_seq) if snapshots else last_seq
    local = replace(
        local,
        tree=replace(local.tree, l0=(view, *local.tree.l0)),
        last_l0_seq=last_seq,
        recent_snapshot_min_seq=Seq(oldest_snapshot),
        replay_after_wal_id=local.next_wal_sst_id,
        next_wal_sst_id=WalId(local.next_wal_sst_id + 1),
    )
    conflicts = 0
    while True:
        try:
            await owner.update(Versioned(owner.id, local))
        except ObjectVersionExists:
            conflicts += 1
            await owner.recover(conflicts)
            local = rebase_writer(local, owner.value)
        else:
            return


def _rows(rng: random.Random, last_seq: int, keys: int, deletes: float, rows_max: int) -> list[Entry]:
    entries = []
    for seq in range(last_seq + 1, last_seq + 2 + rng.randrange(rows_max)):
        key = b"key%02d" % rng.randrange(keys)
        if rng.random() < deletes:
            entries.append(Entry(key, b"", seq, FLAG_TOMBSTONE))
        else:
            entries.append(Entry(key, b"value %d of %s" % (seq, key), seq, 0))
    return sorted(entries, key=lambda entry: (entry.key, -entry.seq))


async def compactor(process: SimProcess, *, options: CompactorOptions = OPTIONS) -> None:
    """The real thing."""
    whole = Compactor(process.store, ROOT, process.env, options, process.metrics)
    await whole.start()
    await whole.run()


async def coordinator(process: SimProcess) -> None:
    """Without a worker."""
    await compactor(process, options=replace(OPTIONS, embedded_worker=False))


async def worker(process: SimProcess) -> None:
    """On its own."""
    executor = Executor(process.store, ROOT, process.env, OPTIONS.executor)
    await Worker(manifests_of(process), compactions_of(process), executor, process.env, OPTIONS.worker).run()


async def metadata_collector(process: SimProcess, *, interval_s: float = 60.0, min_age_s: float = 300.0) -> None:
    """Expire checkpoints and delete old versions of both kinds, the boundary first."""
    stores = (manifests_of(process), compactions_of(process))
    while True:
        await anyio.sleep(interval_s)
        now_ms = process.env.clock.now_ms()
        stored = await stores[0].load()
        await remove_expired_checkpoints(stored, now_ms)
        pinned = {checkpoint.manifest_id for checkpoint in stored.value.checkpoints}
        for store in stores:
            versions = (await store.list_versions())[:-1]
            kept = pinned if store is stores[0] else set()
            doomed = [v.id for v in versions if now_ms - v.last_modified_ms > min_age_s * 1000 and v.id not in kept]
            if doomed:
                await store.advance_boundary(max(doomed))
                for file_id in doomed:
                    await store.delete(file_id)


class RowRules:
    """After every manifest: each row that was ever flushed is visible, overwritten or deleted, and is there once."""

    def __init__(self, root: str = ROOT) -> None:
        self.root = root
        self.latest_id = 0
        self._flushed: dict[bytes, dict[int, Entry]] = defaultdict(dict)
        self._l0s: set[int] = set()
        self._entries: dict[int, list[Entry]] = {}

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Rules``."""
        manifest_id = parse_manifest_key(self.root, mutation.key)
        if manifest_id is None or mutation.op == "delete" or manifest_id <= self.latest_id:
            return
        self.latest_id = manifest_id
        manifest = decode(mutation)
        for view in manifest.tree.l0:
            if view.sst.id not in self._l0s:
                self._l0s.add(view.sst.id)
                for entry in self.entries_of(sim, view.sst):
                    self._flushed[entry.key][entry.seq] = entry
        self.check(sim, manifest, str(mutation))

    def check(self, sim: Simulation, manifest: Manifest, where: str = "") -> None:
        """Compare what the trees show, now and at the oldest snapshot, with what was flushed."""
        shown: dict[bytes, dict[int, Entry]] = defaultdict(dict)
        for view in manifest.views():
            for entry in self.entries_of(sim, view.sst):
                assert entry.seq not in shown[entry.key], f"{where}: {entry} appears twice"
                shown[entry.key][entry.seq] = entry
        for key, flushed in self._flushed.items():
            for at_seq in (manifest.recent_snapshot_min_seq, manifest.last_l0_seq):
                wanted, found = _visible(flushed, at_seq), _visible(shown[key], at_seq)
                assert found == wanted, f"{where}: {key!r} at {at_seq} shows {found}, not {wanted}"

    def entries_of(self, sim: Simulation, sst: Sst) -> list[Entry]:
        """The rows of an SST that exists."""
        if sst.id not in self._entries:
            self._entries[sst.id] = read_entries(sim, sst)
        return self._entries[sst.id]


def decode(mutation: Mutation) -> Manifest:
    assert mutation.data is not None
    return decode_manifest(mutation.data)


def read_entries(sim: Simulation, sst: Sst) -> list[Entry]:
    key = sst_key(ROOT, sst.id)
    data = sim.memory._objects[key].data
    info = sst.info
    image = open_section(data[info.index_offset : info.index_offset + info.index_len], info.compression, key, 0)
    offsets = decode_index(image, data_len=info.data_len).offsets
    stored = data[: info.data_len]
    blocks = decode_blocks(stored, offsets, version=sst.format_version, compression=info.compression, path=key)
    return entries_from_rows(blocks)


def _visible(versions: dict[int, Entry], at_seq: int) -> bytes | None:
    seq = max((seq for seq in versions if seq <= at_seq), default=None)
    return None if seq is None or versions[seq].is_tombstone else versions[seq].value


class World:
    """A simulation with the rules of a database, and the questions that every row asks."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.rules = DatabaseRules(sim, ROOT)
        self.rows = RowRules()
        sim.watch(self.rules, self.rows)

    @property
    def manifest(self) -> Manifest:
        return self.rules.manifests.latest

    @property
    def compactions(self) -> Compactions:
        return self.rules.compactions.latest if self.rules.compactions.latest_id else Compactions()

    def filled(self, flushes: int, **options: object) -> "World":
        """Write some L0s before anything else happens, without faults."""
        process = self.sim.start(writer, "first", role="writer", flushes=flushes, pause_s=1.0, **options)
        self.sim.run(hours=1)
        assert process.error is None
        return self

    def is_settled(self) -> bool:
        """Nothing is under way and too few L0s are left for another compaction."""
        busy = any(process.is_running and process.role == "writer" for process in self.sim.processes)
        active = any(entry.is_active for entry in self.compactions.entries)
        has_started = self.compactions.compactor_epoch > 0
        return has_started and not busy and not active and len(self.manifest.tree.l0) < SCHEDULER.min_compaction_sources

    def settle(self) -> None:
        """Heal, start a fresh compactor, and wait until it has done everything there is to do."""
        self.sim.heal()
        self.sim.start(compactor, "last", role="compactor")
        self.sim.run(hours=6, until=self.is_settled)
        assert self.is_settled(), f"still to do: {self.compactions.entries} over {len(self.manifest.tree.l0)} L0s"
        finished = [entry for entry in self.compactions.entries if not entry.is_active]
        assert len(finished) <= 1, f"finished entries pile up: {finished}"
        self.rows.check(self.sim, self.manifest)

    def owners(self) -> dict[int, Sequence[str]]:
        """Who has ever run which compaction, in order."""
        owners: dict[int, list[str]] = defaultdict(list)
        for version in self.rules.compactions.versions.values():
            for entry in version.entries:
                if entry.worker is not None and entry.worker.worker_id not in owners[entry.id]:
                    owners[entry.id].append(entry.worker.worker_id)
        return dict(owners)
