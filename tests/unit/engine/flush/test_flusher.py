"""The memtable flusher alone: tables reach the manifest in order, and only once they are durable."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from shale.engine.flush.admission import L0Admission
from shale.engine.flush.checkpointing import PendingCheckpoints
from shale.engine.flush.committer import FlushCommitter
from shale.engine.flush.flusher import MemtableFlusher
from shale.engine.flush.uploader import L0Uploader, TableUploader, sst_options
from shale.engine.read.active_seqs import ActiveSeqs
from shale.engine.write.instruments import WriterInstruments
from shale.env import Env
from shale.errors import ShaleError
from shale.telemetry.metrics import Metrics
from tests.unit.engine.writer_parts import Parts, make_parts


def with_flusher(
    scenario: Callable[[Parts, MemtableFlusher], Awaitable[None]], metrics: Metrics | None = None, **options: Any
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        parts = await make_parts(**options)
        instruments = WriterInstruments(Metrics() if metrics is None else metrics)
        admission = L0Admission(parts.manifest, parts.durability, parts.options, instruments, Env.system())
        committer = FlushCommitter(
            parts.pipeline,
            parts.manifest,
            parts.durability,
            active=ActiveSeqs(),
            checkpoints=PendingCheckpoints(),
            options=parts.options,
            instruments=instruments,
        )
        uploader = TableUploader(
            L0Uploader(parts.store, sst_options(parts.options, None), None, parts.env),
            parts.options,
            sst_key=lambda sst_id: f"db/compacted/{sst_id}.sst",
            min_seq=committer.oldest_needed_seq,
            on_failing=parts.durability.changed.notify,
        )
        flusher = MemtableFlusher(
            parts.pipeline.buffers.frozen,
            admission,
            uploader,
            committer,
            manifest=parts.manifest,
            env=parts.env,
            instruments=instruments,
        )

        def fail(error: ShaleError) -> None:
            raise AssertionError(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flusher.run, fail)
            tasks.start_soon(flusher.sort)
            with anyio.fail_after(60):
                await scenario(parts, flusher)
            tasks.cancel_scope.cancel()

    return run


async def freeze(parts: Parts, flusher: MemtableFlusher, key: bytes) -> None:
    await parts.pipeline.put(key, b"v")
    parts.pipeline.freeze()
    flusher.wake()


def test_frozen_tables_reach_the_manifest_in_order() -> None:
    async def scenario(parts: Parts, flusher: MemtableFlusher) -> None:
        for key in (b"a", b"b", b"c"):
            await freeze(parts, flusher, key)
        await parts.durability.wait_flushed(3)
        manifest = parts.manifest.current
        assert (len(manifest.tree.l0), manifest.last_l0_seq) == (3, 3)
        assert not parts.pipeline.buffers.frozen.tables
        made_ms = [view.sst.id.ms for view in manifest.tree.l0]  # ids of one millisecond have no order of their own
        assert made_ms == sorted(made_ms, reverse=True)
        assert [view.sst.info.first_entry for view in manifest.tree.l0] == [b"c", b"b", b"a"]
        assert parts.durability.durable_seq == 3

    anyio.run(with_flusher(scenario, wal_enabled=False))


def test_a_table_waits_until_the_wal_has_its_rows() -> None:
    async def scenario(parts: Parts, flusher: MemtableFlusher) -> None:
        await freeze(parts, flusher, b"a")
        while "wal flush requested" not in parts.listener.calls:  # noqa: ASYNC110 - the listener is a plain list
            await anyio.sleep(0.01)
        assert parts.manifest.current.last_l0_seq == 0
        parts.durability.advance_durable(1)
        flusher.wake()
        await parts.durability.wait_flushed(1)
        assert parts.manifest.current.last_l0_seq == 1

    anyio.run(with_flusher(scenario))


def test_a_full_l0_stalls_the_flush() -> None:
    metrics = Metrics()
    stalled = metrics.gauge("slatedb_db_l0_stalled")

    async def scenario(parts: Parts, flusher: MemtableFlusher) -> None:
        await freeze(parts, flusher, b"a")
        await parts.durability.wait_flushed(1)
        assert stalled.value == 0
        await freeze(parts, flusher, b"b")
        while not flusher.is_stuck:  # noqa: ASYNC110 - nothing notifies of the stall but the flusher itself
            await anyio.sleep(0.01)
        assert len(parts.pipeline.buffers.frozen.tables) == 1
        assert parts.durability.flushed_seq == 1
        assert stalled.value == 1

    anyio.run(with_flusher(scenario, metrics, wal_enabled=False, l0_max_ssts=1))
