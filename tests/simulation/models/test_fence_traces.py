"""The requests of real writers, under faults, are a run of the model of epochs and fences (docs/concepts/models.md)."""

from dataclasses import replace

import pytest

from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.wal_fence import WalFence
from shale.protocol.wal_store import WalStore
from shale.types import WalId
from tests.simulation.models.fence_trace import Event, Trace, deviations, record, record_stall
from tests.simulation.models.trace_check import SEEDS, checked, require_runs


def test_requests_of_real_writers_are_a_run_of_the_model() -> None:
    require_runs(record, deviations)


@pytest.mark.slow
def test_a_writer_that_wakes_at_a_slot_that_is_free_again_is_a_run_of_the_model() -> None:
    trace = record_stall()
    late = [event for event in trace.events if event[:2] == ("append", "old")][-1]
    fences = [event[2] for event in trace.events if event[:2] == ("fence", "new")]
    assert late[2] in fences, "the slot was not free again"
    assert checked(deviations, [trace]) == [None]


def test_traces_have_claims_fences_flushes_and_deletes() -> None:
    """A trace without them would fit any model."""
    events = [event for seed in range(SEEDS) for event in record(seed).events]
    assert {event[0] for event in events} == {"read", "commit", "fence", "append", "refused", "delete", "ack"}
    assert any(event[0] == "commit" and event[2] and event[4] for event in events), "no flush left rows in the WAL"


async def _unfenced(_wal: WalStore, _manifest: FenceableManifest, probe_id: int, *_: object) -> WalFence:
    return WalFence(WalId(probe_id - 1), 1, 0)


@pytest.mark.slow
def test_traces_of_code_with_a_defect_are_no_runs_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    no_limit = record_stall(wal_stall_limit="24h")
    monkeypatch.setattr("shale.engine.write.claim.fence_wal", _unfenced)
    found = checked(deviations, [no_limit, record_stall()])
    assert [event and event[:2] for event in found] == [("ack", "old"), ("append", "old")]


def _changed(trace: Trace, place: int, *events: Event) -> Trace:
    return replace(trace, events=(*trace.events[:place], *events, *trace.events[place + 1 :]))


def test_broken_logs_are_no_runs_of_the_model() -> None:
    """The checker refuses each of these logs.

    A fence is left out; a row is acknowledged before its file exists; a flush passes a file in flight, or lacks rows of
    a file that it passes; a fenced writer commits.
    """
    trace = record(0)
    kinds = [event[0] for event in trace.events]
    fence, file = kinds.index("fence"), kinds.index("append")
    flush = next(place for place, event in enumerate(trace.events) if event[0] == "commit" and event[2])
    what, process, stamp, epoch, rows = trace.events[flush]
    owner, number = trace.events[file][1], trace.events[file][3]
    claim = max(place for place, event in enumerate(trace.events) if event[0] == "commit" and event[3] > epoch)
    fenced: Event = (what, process, trace.events[claim][2], epoch, frozenset())
    early: Event = ("ack", owner, 0, number, frozenset())
    broken = [
        _changed(trace, fence),
        _changed(trace, file, early, trace.events[file]),
        _changed(trace, flush, (what, process, stamp + 1, epoch, rows)),
        _changed(trace, flush, (what, process, stamp, epoch, rows | {(owner, number)})),
        _changed(trace, claim, trace.events[claim], fenced),
    ]
    found = checked(deviations, broken)
    assert found[0] is not None
    assert found[1] == early
    assert [event and event[:2] for event in found[2:4]] == [("commit", process)] * 2
    assert found[4] == fenced
