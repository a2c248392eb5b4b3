"""The claim of a database: what it reads, refuses and writes (docs/reference/protocol.md 4.1)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.write.claim import ClaimedDatabase, ClaimOptions, claim_database
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, FencedError, InvalidDbState, InvalidRequestError
from shale.format.manifest import encode_manifest
from shale.format.names import manifest_key, visible_range_key, wal_key
from shale.format.sst.filter_policy import FixedPrefix
from shale.kernels.rows import EMPTY_ROWS, Rows, entries_from_rows, rows_from_entries
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.versioned import Versioned
from shale.protocol.visible_range import encode_visible_range
from shale.protocol.wal_store import WalStore
from shale.sst.wal_builder import build_wal_sst
from shale.store.memory import MemoryStore
from shale.store.port import GetResult, ObjectMeta
from shale.telemetry.metrics import Metrics
from shale.types import (
    FLAG_CREATE_TS,
    Checkpoint,
    Compression,
    Entry,
    Epoch,
    ExclusiveModes,
    ExternalDb,
    KeyRange,
    Manifest,
    ManifestId,
    WalId,
)
from tests.unit.engine.write.takeover.manifest_history import sign

ENV = Env(SystemClock(), Random(1), InlineCpu())


def rows_of_file(wal_id: int) -> Rows:
    """Return the rows of a WAL file: one, whose sequence number is that of the file."""
    return rows_from_entries([Entry(b"k", b"v", wal_id, FLAG_CREATE_TS, wal_id)])


FILES = {wal_id: build_wal_sst(rows_of_file(wal_id), Compression.NONE) for wal_id in range(1, 6)}


class WatchedStore(MemoryStore):
    """A store that counts requests of WAL files, and can do something before a read or a put."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}

    async def get(self, key: str) -> GetResult | None:
        await self._note(key)
        return await super().get(key)

    async def head(self, key: str) -> ObjectMeta | None:
        await self._note(key)
        return await super().head(key)

    async def put(self, key: str, *args: Any, **options: Any) -> Any:
        if action := self.before.pop(f"put {key}", None):
            await action()
        return await super().put(key, *args, **options)

    async def _note(self, key: str) -> None:
        self.asked.add(key)
        if action := self.before.pop(key, None):
            await action()


def run(scenario: Callable[[WatchedStore], Awaitable[None]]) -> None:
    anyio.run(scenario, WatchedStore())


async def made(store: MemoryStore, manifest: Manifest | None = None, files: dict[int, bytes] = FILES) -> None:
    """Write a database of one version and these WAL files."""
    await store.put(manifest_key("db", 1), encode_manifest(manifest or Manifest()))
    for wal_id, data in files.items():
        await store.put(wal_key("db", wal_id), data)


async def claim(store: MemoryStore, metrics: Metrics | None = None, **options: Any) -> ClaimedDatabase:
    return await claim_database(
        ManifestStore(store, "db", ENV),
        WalStore(store, "db"),
        store=store,
        root="db",
        env=ENV,
        metrics=metrics or Metrics(db="db"),
        options=ClaimOptions(**options),
    )


def seqs(rows: dict[int, Rows]) -> dict[int, list[int]]:
    return {wal_id: [row.seq for row in entries_from_rows(each)] for wal_id, each in rows.items()}


@pytest.mark.parametrize(
    ("options", "exclusive"),
    [
        ({}, None),
        ({"max_parallel_writes": 1}, None),
        ({"max_parallel_writes": 4}, ExclusiveModes(max_parallel_writes=4)),
    ],
)
def test_a_new_database_records_its_modes(options: dict[str, Any], exclusive: ExclusiveModes | None) -> None:
    async def scenario(store: WatchedStore) -> None:
        claimed = await claim(store, extractor=FixedPrefix("two", 2), **options)
        assert (claimed.manifest.value.exclusive, claimed.manifest.value.segment_extractor_name) == (exclusive, "two")
        assert (claimed.manifest.epoch, claimed.keys, claimed.checkpoint) == (1, None, None)
        assert claimed.fence_id == (options.get("max_parallel_writes") or 1)
        assert claimed.wal_rows == dict.fromkeys(range(1, claimed.fence_id + 1), EMPTY_ROWS)

    run(scenario)


@pytest.mark.parametrize(("found", "wanted", "fits"), [(1, None, True), (1, 1, True), (2, 2, True), (2, None, True),
                                                       (1, 2, False), (2, 1, False), (2, 3, False)])  # fmt: skip
def test_the_number_of_parallel_writes_is_fixed(found: int, wanted: int | None, *, fits: bool) -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(exclusive=ExclusiveModes(max_parallel_writes=found) if found > 1 else None), {})
        before = sorted(store.objects)
        if fits:
            assert (await claim(store, max_parallel_writes=wanted)).manifest.value.max_parallel_writes == found
        else:
            with pytest.raises(InvalidRequestError, match=f"={wanted}: the database at db was created with {found}"):
                await claim(store, max_parallel_writes=wanted)
            assert sorted(store.objects) == before

    run(scenario)


def test_a_database_is_not_claimed_without_its_wal() -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(exclusive=ExclusiveModes(wal_backend="log")), {})
        before = sorted(store.objects)
        with pytest.raises(InvalidRequestError, match="the database at db keeps its WAL in the backend 'log'"):
            await claim(store)
        assert sorted(store.objects) == before

    run(scenario)


def test_what_is_missing_or_half_built_is_refused() -> None:
    async def scenario(store: WatchedStore) -> None:
        with pytest.raises(InvalidDbState, match=r"no database at db in memory:///, and create_if_missing is off"):
            await claim(store, create_if_missing=False)
        await made(store, Manifest(initialized=False), {})
        with pytest.raises(InvalidDbState, match="the database at db is not initialised"):
            await claim(store)
        assert sorted(store.objects) == [manifest_key("db", 1)]

    run(scenario)


def test_two_processes_that_create_a_database_open_the_same_one() -> None:
    async def scenario(store: WatchedStore) -> None:
        store.before[f"put {manifest_key('db', 1)}"] = lambda: made(store, Manifest(compactor_epoch=Epoch(5)), {})
        claimed = await claim(store)
        assert (claimed.manifest.value.compactor_epoch, claimed.manifest.epoch, claimed.manifest.id) == (5, 1, 2)

    run(scenario)


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        pytest.param([], {2, 3, 4, 5}, id="none"),
        pytest.param([2, 3], {4, 5}, id="the first"),
        pytest.param([2, 3, 4, 5], set[int](), id="all"),
        pytest.param([2, 4], {3, 4, 5}, id="with a gap, beyond which the end is searched"),
        pytest.param([1, 9], {2, 3, 4, 5}, id="others"),
    ],
)
def test_rows_that_are_known_are_not_read_again(known: list[int], asked: set[int]) -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(replay_after_wal_id=WalId(1), next_wal_sst_id=WalId(3)))
        rows = {wal_id: rows_of_file(wal_id) for wal_id in known}
        store.asked.clear()
        metrics = Metrics(db="db")
        claimed = await claim(store, metrics, wal_rows=rows)
        assert metrics.counter("slatedb_wal_fence_retries_total").value == 0
        assert claimed.fence_id == 6
        assert seqs(claimed.wal_rows) == {**{wal_id: [wal_id] for wal_id in range(2, 6)}, 6: []}
        read = {wal_id for wal_id in range(1, 6) if wal_key("db", wal_id) in store.asked}
        assert read == asked

    run(scenario)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_damaged_file_is_ignored_only_if_its_rows_were_flushed_meanwhile(is_flushed: bool) -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(next_wal_sst_id=WalId(5)), {**FILES, 3: FILES[3][:-5]})

        async def flush() -> None:
            stored = await ManifestStore(store, "db", ENV).load()
            after = WalId(3) if is_flushed else WalId(0)
            await stored.update(Versioned(stored.id, replace(stored.value, replay_after_wal_id=after)))

        store.before[wal_key("db", 3)] = flush
        if is_flushed:
            claimed = await claim(store)
            assert seqs(claimed.wal_rows) == {4: [4], 5: [5], 6: []}
            assert claimed.manifest.epoch == 1
        else:
            with pytest.raises(CorruptionError, match=wal_key("db", 3)):
                await claim(store)
            assert sorted(key for key in store.objects if "manifest" in key) == [
                manifest_key("db", 1), manifest_key("db", 2),
            ]  # fmt: skip

    run(scenario)


def test_a_database_whose_wal_files_are_gone_is_not_claimed() -> None:
    """A live writer keeps its epoch, and nothing takes the place of a lost file."""

    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(writer_epoch=Epoch(7), next_wal_sst_id=WalId(6)), {})
        before = sorted(store.objects)
        with pytest.raises(InvalidDbState, match=wal_key("db", 1)):
            await claim(store)
        assert sorted(store.objects) == before

    run(scenario)


def test_an_admission_sees_the_newest_state_and_may_refuse() -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(writer_epoch=Epoch(7)))
        before = sorted(store.objects)
        seen: list[tuple[int, int]] = []

        async def refuse(stored: StoredManifest, last_wal_id: WalId) -> None:
            seen.append((stored.value.writer_epoch, last_wal_id))
            raise InvalidDbState("not now")

        with pytest.raises(InvalidDbState, match="not now"):
            await claim(store, admit=refuse)
        assert seen == [(7, 5)]
        assert sorted(store.objects) == before

    run(scenario)


@pytest.mark.parametrize("with_admission", [True, False])
def test_a_claim_that_was_admitted_takes_no_other_writers_epoch(with_admission: bool) -> None:
    """Without an admission the newest claim wins."""

    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest(writer_epoch=Epoch(7)), {})
        other: list[ClaimedDatabase] = []

        async def admit(_stored: StoredManifest, _last_wal_id: WalId) -> None:
            other.append(await claim(store))

        if with_admission:
            with pytest.raises(FencedError):
                await claim(store, admit=admit)
            await other[0].manifest.refresh()
            assert other[0].manifest.epoch == 8
        else:
            store.before[f"put {manifest_key('db', 2)}"] = lambda: claim(store)
            assert (await claim(store)).manifest.epoch == 9

    run(scenario)


def test_a_writer_that_is_replaced_before_its_fence_is_told_so() -> None:
    """The newer one has claimed the epoch and not yet written its own fence."""

    async def scenario(store: WatchedStore) -> None:
        await made(store, Manifest())

        async def replace_it() -> None:
            stored = await ManifestStore(store, "db", ENV).load()
            await stored.update(Versioned(stored.id, replace(stored.value, writer_epoch=Epoch(2))))

        store.before[f"put {wal_key('db', 6)}"] = replace_it
        with pytest.raises(FencedError):
            await claim(store)

    run(scenario)


def test_a_claim_removes_the_signs_of_older_writers() -> None:
    async def scenario(store: WatchedStore) -> None:
        own = Checkpoint(id=UUID(int=9), manifest_id=ManifestId(1))
        await made(store, Manifest(writer_epoch=Epoch(7), checkpoints=(sign(7), own, sign(6))), {})
        assert (await claim(store)).manifest.value.checkpoints == (own,)

    run(scenario)


RANGE = KeyRange.half_open(b"a", b"m")


@pytest.mark.parametrize("given", [None, KeyRange.half_open(b"b", b"c")])
def test_a_claim_keeps_to_the_stored_range_or_to_the_given_one(given: KeyRange | None) -> None:
    async def scenario(store: WatchedStore) -> None:
        await made(store, files={})
        await store.put(visible_range_key("db"), encode_visible_range(RANGE))
        assert (await claim(store, keys=given)).keys == (given or RANGE)

    run(scenario)


def test_a_clone_whose_parent_is_in_another_store_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shale.Db.open("parent", store=f"file://{tmp_path}"):
            pass
        inner = tmp_path / "inner"
        inner.mkdir()
        manifest = Manifest(external_dbs=(ExternalDb(path="parent", source_checkpoint_id=UUID(int=1)),))
        path = inner / manifest_key("db", 1)
        path.parent.mkdir(parents=True)
        path.write_bytes(encode_manifest(manifest))
        with pytest.raises(InvalidRequestError, match="is a clone that uses SSTs of parent"):
            await shale.Db.open("db", store=f"file://{inner}")
        assert [each.name for each in path.parent.iterdir()] == [path.name]

    anyio.run(scenario)
