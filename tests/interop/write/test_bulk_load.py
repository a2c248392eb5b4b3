"""The released ``slatedb`` package opens and continues databases made by one manifest around Shale's SSTs."""

import asyncio
from pathlib import Path

import pytest

import shale
from shale.engine.load.target import ExistingDatabase, LoadTarget, NewDatabase
from shale.engine.write.clean_close import require_clean_close
from shale.env import Env
from shale.errors import InvalidDbState
from shale.format.names import sst_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.sst.builder import build_sst
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.telemetry.metrics import Metrics
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Compression, Entry, Sst, WalId
from tests.interop.slatedb_databases import Shape, flush, flush_wal, open_folder, opened, put_all, scanned

ENV = Env.system()
HOUR_MS = 3_600_000


def entries_of(target: LoadTarget, numbers: range) -> list[Entry]:
    stamp, flags = target.stamp, (FLAG_CREATE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS)
    return [
        Entry(
            b"%05d" % number,
            b"value %d " % number * 9,
            stamp.seq,
            flags[number % 2],
            stamp.create_ts,
            (stamp.create_ts + HOUR_MS) * (number % 2),
        )
        for number in numbers
    ]


def shown(entries: list[Entry]) -> list[tuple[object, ...]]:
    return [(entry.key, entry.value, entry.seq, entry.create_ts, entry.expire_ts or None) for entry in entries]


async def load(store: object, target: LoadTarget, parts: list[list[Entry]], compression: Compression) -> None:
    ssts = []
    for part in parts:
        data, info = build_sst(rows_from_entries(part), SstOptions(compression=compression, min_filter_keys=1))
        sst = Sst(id=ENV.ids.ulid(target.stamp.not_before_ms), info=info)
        await store.put(sst_key("db", sst.id), data)  # type: ignore[attr-defined]
        ssts.append(sst)
    await target.commit(ssts)
    await target.close()


@pytest.mark.parametrize("compression", list(Compression))
def test_the_peer_reads_and_continues_a_loaded_database(tmp_path: Path, compression: Compression) -> None:
    async def scenario() -> None:
        store = connect(f"file://{tmp_path}", ENV)
        target: LoadTarget = await NewDatabase.open(store, "db", ENV, Metrics())
        rows = entries_of(target, range(0, 6000, 2)) + entries_of(target, range(6001, 9000, 2))
        await load(store, target, [rows[:3000], rows[3000:]], compression)
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            assert await scanned(peer) == shown(rows)
            assert await peer.get(b"00002") == rows[1].value
            assert await peer.get(b"00003") is None
            assert (await peer.put(b"00002", b"newer")).seqnum() == 2
            await put_all(peer, [(b"00004", None)])
            await flush(peer)
            await peer.put(b"in the WAL", b"x")
        target = await ExistingDatabase.open(store, "db", ENV, Metrics())
        more = entries_of(target, range(100, 200))
        await load(store, target, [more[:40], more[40:]], compression)
        expected = {entry.key: entry.value for entry in (*rows, *more)}
        del expected[b"00004"]
        expected |= {b"00002": b"newer", b"in the WAL": b"x"}
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            assert {row[0]: row[1] for row in await scanned(peer)} == expected
            assert (await peer.put(b"00100", b"newest")).seqnum() == target.stamp.seq + 1
            await flush(peer)
        async with shale.DbReader.open("db", store=store) as reader:
            assert {row.key: row.value async for row in reader.scan()} == expected | {b"00100": b"newest"}
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("state", ["fresh", "rows in the WAL", "rows in L0", "flushed twice"])
def test_a_peer_that_runs_is_told_from_one_that_has_closed(tmp_path: Path, state: str) -> None:
    async def scenario() -> None:
        store = connect(f"file://{tmp_path}", ENV)

        async def check() -> None:
            stored = await ManifestStore(store, "db", ENV).load()
            last_id = await WalStore(store, "db").last_seen_wal_id(stored.value.replay_after_wal_id)
            await require_clean_close(stored, WalId(last_id))

        for _ in range(2):
            async with opened(open_folder(tmp_path), "db", Shape()) as peer:
                if state != "fresh":
                    await peer.put(b"0001", b"x")
                    await flush_wal(peer)
                if state in ("rows in L0", "flushed twice"):
                    await flush(peer)
                if state == "flushed twice":
                    await flush(peer)
                with pytest.raises(InvalidDbState, match="has not closed"):
                    await check()
            await check()
        await store.aclose()

    asyncio.run(scenario())
