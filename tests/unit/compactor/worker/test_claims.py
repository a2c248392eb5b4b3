"""Edits of a worker: it changes only its own jobs (docs/reference/protocol.md 6.9)."""

from dataclasses import replace

import pytest

from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction, WorkerClaim
from shale_compactor.worker.claims import claim, claimable, finish, heartbeat, invalid_progress, owns, release
from tests.unit.compactor.values import S, compactions, drain, entry, spec, sst, ulid

WHAT = spec(runs=(1,), to=1)
ME = WorkerClaim(worker_id="me", last_heartbeat_ms=5)
MINE = entry(1, WHAT, S.RUNNING, worker=ME)
OTHERS = entry(2, WHAT, S.RUNNING)


def ctx(*outputs, seq=9):
    return CompactionContext(
        subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=outputs),), retention_min_seq=Seq(seq)
    )


def test_claimable_entries_are_scheduled_tiered_free_and_oldest_first():
    value = compactions(
        entry(6, WHAT, S.SCHEDULED),
        entry(5, WHAT, S.SCHEDULED),
        entry(4, drain(b"s", (1,)), S.SCHEDULED),
        entry(3, WHAT, S.SCHEDULED, worker=ME),
        entry(7, WHAT, S.SCHEDULED),
        entry(8, WHAT),
    )
    assert [found.id.ms for found in claimable(value, {ulid(5)}, 4)] == [6, 7]
    assert [found.id.ms for found in claimable(value, set(), 1)] == [5]
    assert claimable(value, set(), -1) == []


def test_claim_sets_status_and_worker():
    value = compactions(entry(1, WHAT, S.SCHEDULED, ctx=ctx(sst(1))), entry(2, WHAT, S.SCHEDULED))
    first, second = claim(value, [ulid(1)], "me", 70).entries
    assert owns(first, "me")
    assert first.worker == WorkerClaim(worker_id="me", last_heartbeat_ms=70)
    assert first.ctx == ctx(sst(1))
    assert second.status is S.SCHEDULED


def test_heartbeat_stamps_and_extends_only_owned_entries():
    stored = compactions(replace(MINE, ctx=ctx(sst(1))), OTHERS)
    value = heartbeat(stored, {ulid(1): ctx(sst(1), sst(2)), ulid(2): ctx(sst(3))}, "me", 70)
    assert value is not None
    mine, others = value.entries
    assert mine.worker == WorkerClaim(worker_id="me", last_heartbeat_ms=70)
    assert mine.ctx == ctx(sst(1), sst(2))
    assert others == OTHERS
    assert heartbeat(compactions(OTHERS), {ulid(2): None}, "me", 70) is None


@pytest.mark.parametrize("ours", [ctx(), ctx(sst(2)), ctx(sst(1), seq=8)], ids=["shorter", "other", "other barrier"])
def test_progress_that_does_not_continue_what_is_stored_is_not_published(ours):
    mine = replace(MINE, ctx=ctx(sst(1)))
    assert heartbeat(compactions(mine), {ulid(1): ours}, "me", 70) is None
    assert list(invalid_progress(compactions(mine), {ulid(1): ours}, "me")) == [ulid(1)]
    value = release(compactions(mine), {ulid(1): ours}, "me")
    assert value is not None
    assert (value.entries[0].status, value.entries[0].ctx) == (S.SCHEDULED, mine.ctx)


def test_progress_that_continues_contradicts_nothing():
    for stored in (None, ctx(), ctx(sst(1))):
        mine = replace(MINE, ctx=stored)
        assert invalid_progress(compactions(mine), {ulid(1): ctx(sst(1), sst(2))}, "me") == {}
        assert invalid_progress(compactions(mine), {ulid(1): None}, "me") == {}


def test_finish_hands_the_outputs_over():
    value = finish(compactions(replace(MINE, ctx=ctx(sst(1)))), ulid(1), (sst(1), sst(2)), "me", 70)
    assert value is not None
    (done,) = value.entries
    assert (done.status, done.output_ssts, done.ctx) == (S.COMPACTED, (sst(1), sst(2)), None)
    assert done.worker == WorkerClaim(worker_id="me", last_heartbeat_ms=70)


@pytest.mark.fault("F4.3")
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(compactions(), id="gone"),
        pytest.param(compactions(entry(1, WHAT, S.RUNNING)), id="owned by another"),
        pytest.param(compactions(entry(1, WHAT, S.SCHEDULED)), id="reclaimed"),
        pytest.param(compactions(entry(1, WHAT, S.FAILED, worker=ME)), id="failed with our name on it"),
    ],
)
def test_a_lost_job_cannot_be_finished_released_or_kept_alive(stored):
    """T6.d."""
    assert finish(stored, ulid(1), (sst(1),), "me", 70) is None
    assert release(stored, {ulid(1): None}, "me") is None
    assert heartbeat(stored, {ulid(1): None}, "me", 70) is None


def test_release_keeps_the_progress():
    value = release(compactions(MINE), {ulid(1): ctx(sst(1))}, "me")
    assert value is not None
    (free,) = value.entries
    assert (free.status, free.worker, free.ctx) == (S.SCHEDULED, None, ctx(sst(1)))
