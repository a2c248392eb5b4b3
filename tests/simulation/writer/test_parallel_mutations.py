"""The simulation of parallel WAL writes finds injected defects (docs/reference/protocol.md 4.13)."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from shale.engine.wal.buffer import PendingWalFile
from shale.engine.wal.parallel_flusher import ParallelWalFlusher
from shale.engine.wal.put_window import PutWindow
from shale.engine.wal.replay import ReplayedRows, replay_wal
from shale.kernels.rows import EMPTY_ROWS
from shale.protocol.wal_fence import FenceRun, WalFence
from shale.protocol.wal_store import WalStore
from shale.types import WalId
from tests.simulation.mutations import seed_that_fails
from tests.simulation.writer.parallel import ACKS, gap_after_crash, reader_at_a_gap, succession

SCENARIOS = (gap_after_crash, succession, reader_at_a_gap)


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_unbroken_code_passes(scenario: Callable[[int, str], object], ack: str) -> None:
    """The scenarios pass without a defect; a check that always fails would be useless."""
    for seed in range(3):
        scenario(seed, ack)


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
def test_gaps_are_not_filled(monkeypatch: pytest.MonkeyPatch, ack: str) -> None:
    """The run of fences begins after the last file."""

    def after_all(ids: Sequence[int], after: int) -> int:
        return max(ids, default=after) + 1

    monkeypatch.setattr("shale.protocol.wal_fence.first_missing", after_all)
    seed_that_fails(partial(gap_after_crash, ack=ack))


@pytest.mark.slow
@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
def test_one_fence_is_enough(monkeypatch: pytest.MonkeyPatch, ack: str) -> None:
    """The run is shorter than the number of puts that an older writer has in flight."""

    def one(_length: int, next_id: int, last_seen_id: int) -> FenceRun:
        return FenceRun(1, next_id, last_seen_id)

    def of_one(last_id: WalId, attempts: int, _count: int) -> WalFence:
        return WalFence(last_id, attempts)

    monkeypatch.setattr("shale.protocol.wal_fence.FenceRun", one)
    monkeypatch.setattr("shale.protocol.wal_fence.WalFence", of_one)
    seed_that_fails(partial(succession, ack=ack))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
def test_the_manifest_counts_files_after_a_gap(monkeypatch: pytest.MonkeyPatch, ack: str) -> None:
    """Its end of the WAL is the highest file that was written."""
    record = ParallelWalFlusher._record

    def counted(flusher: Any, file: PendingWalFile, size: int) -> None:
        record(flusher, file, size)
        durability = flusher._durability
        durability.durable_wal_id = max(durability.durable_wal_id, file.id)

    monkeypatch.setattr(ParallelWalFlusher, "_record", counted)
    seed_that_fails(partial(gap_after_crash, ack=ack))


@pytest.mark.fault("F2.21")
def test_rows_are_durable_before_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows up to those of a file count as durable with this file, although an older one is missing."""

    def written(window: Any, file: PendingWalFile) -> list[PendingWalFile]:
        if file.id <= window._durable_id:
            return []
        window._durable_id = file.id
        return [file]

    monkeypatch.setattr(PutWindow, "written", written)
    seed_that_fails(partial(gap_after_crash, ack="contiguous"))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
def test_a_reader_leaves_gaps_out(monkeypatch: pytest.MonkeyPatch, ack: str) -> None:
    async def highest(wal: WalStore, start_after: int) -> WalId:
        return max(await wal.ids_after(start_after), default=WalId(start_after))

    async def leaving_out(wal: WalStore, first_id: int, last_id: int, **options: Any) -> AsyncIterator[ReplayedRows]:
        existing = set(await wal.ids_after(first_id - 1))
        missing = [wal_id for wal_id in range(first_id, last_id + 1) if wal_id not in existing]
        async for table in replay_wal(wal, first_id, last_id, known=dict.fromkeys(missing, EMPTY_ROWS), **options):
            yield table

    monkeypatch.setattr(WalStore, "_before_first_gap", highest)
    monkeypatch.setattr("shale.engine.reader.wal_replay.replay_wal", leaving_out)
    seed_that_fails(partial(reader_at_a_gap, ack=ack))
