"""The requests of a coordinator to the store: the table of docs/reference/protocol.md 6.6, request by request."""

from collections import Counter
from dataclasses import replace

import pytest

from shale.store.metered import MeteredStore
from shale.telemetry.metrics import Metrics
from shale.types import CompactionContext, KeyRange, Seq, Subcompaction, WorkerClaim
from tests.unit.compactor.harness import START_MS, Harness
from tests.unit.compactor.values import S, drain, entry, manifest, spec, sst, statuses, tree, ulid

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Costs:
    """A coordinator whose requests are counted."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._metrics = Metrics()
        self._store = MeteredStore(
            harness.store, harness.clock, self._metrics, component="compactor", store_type="main"
        )
        self._before: Counter[str] = Counter()

    async def start(self):
        self.coordinator = await self.harness.started(store=self._store, metrics=self._metrics)
        return self.coordinator

    def spent(self) -> dict[str, int]:
        """Return the requests by kind since the last call."""
        now = Counter()
        for family in self._metrics.registry.collect():
            if family.name == "slatedb_object_store_requests":
                for sample in family.samples:
                    if sample.name.endswith("_total"):
                        now[sample.labels["api"]] += int(sample.value)
        spent = now - self._before
        self._before = now
        return dict(spent)


async def watched(*l0):
    harness = await Harness(manifest(tree(l0))).create()
    costs = Costs(harness)
    await costs.start()
    return harness, costs


async def test_a_first_start_and_a_restart():
    harness, costs = await watched(1)
    assert costs.spent() == {"get": 5, "list": 2, "put": 3}, "the epoch twice, and the first compactions"
    again = Costs(harness)
    await again.start()
    assert again.spent() == {"get": 6, "list": 2, "put": 2}, "nothing was left to settle"
    await again.coordinator.release_leadership()
    assert again.spent() == {"get": 1, "put": 1}


async def test_an_idle_tick_reads_and_writes_nothing():
    _, costs = await watched(1)
    await costs.coordinator.run_round()
    costs.spent()
    await costs.coordinator.run_round()
    assert costs.spent() == {"get": 4, "head": 2}, "per file one probe and its boundary; the two marks of the destroyed"


async def test_a_look_for_results_costs_two_reads_until_there_is_one():
    harness, costs = await watched(4, 3, 2, 1)
    await costs.coordinator.run_round()
    costs.spent()
    await costs.coordinator.run_commit_round()
    assert costs.spent() == {"get": 2}
    await harness.claim_and_finish()
    await costs.coordinator.run_commit_round()
    expected = {"get": 10, "head": 1, "put": 4}
    assert costs.spent() == expected, (
        "checkpoint, runs, compactions, record; two new versions were read, one looked for"
    )


async def test_one_compaction_costs_five_writes_of_the_coordinator():
    harness, costs = await watched(4, 3, 2, 1)
    costs.spent()
    await costs.coordinator.run_round()
    assert costs.spent() == {"get": 5, "head": 2, "put": 1}
    await harness.claim_and_finish()
    await costs.coordinator.run_round()
    spent = costs.spent()
    assert (spent["put"], spent.get("list", 0)) == (4, 0), "the last one is the record"


async def test_all_that_a_tick_decides_is_one_write():
    """One write reclaims a job, commits a result, validates a submission and adds a proposal."""
    harness = await Harness(manifest(tree((8, 7, 6, 5), (4, 3)), s=tree((12, 11)))).create()
    costs = Costs(harness)
    coordinator = await costs.start()
    await harness.edit(entry(1, spec(runs=(3,), to=3)), entry(2, spec((12, 11), to=9, segment=b"s")))
    await coordinator.run_round()
    silent = WorkerClaim(worker_id="w", last_heartbeat_ms=1)
    value = await harness.stored()
    await harness.edit(*(replace(job, status=S.RUNNING, worker=silent) for job in value.entries))
    await coordinator.run_round()
    await harness.watch(coordinator, 31)
    done = replace(value.get(ulid(2)), status=S.COMPACTED, worker=silent, output_ssts=(sst(START_MS),))
    await harness.edit(done, entry(3, spec(runs=(3,), to=3)), entry(4, spec(runs=(4,), to=4)))
    before = len(await harness.compactions.list_versions())
    costs.spent()
    now_ms = harness.clock.now_ms()
    await coordinator.run_round()
    assert len(await harness.compactions.list_versions()) == before + 1
    written = [meta for meta in await harness.store.list("db/compaction_records/") if meta.last_modified_ms == now_ms]
    assert len(written) == 5, "one for each job that was reclaimed, committed, admitted or refused"
    assert costs.spent()["put"] == 3 + len(written)
    (proposal,) = (job.id.ms for job in value.entries if job.id.ms > 4)
    assert statuses(await harness.stored()) == {1: S.SCHEDULED, 3: S.FAILED, 4: S.SCHEDULED, proposal: S.SCHEDULED}
    assert [run.id for run in (await harness.manifest()).tree_of(b"s").compacted] == [9]


async def test_nothing_is_written_twice_whatever_the_entries_hold():
    """A value that changes in a round trip would be written again at every tick."""
    harness = await Harness(manifest(tree((8, 7), (6, 5, 4)), s=tree((12,), (3,)))).create()
    costs = Costs(harness)
    coordinator = await costs.start()
    halves = (KeyRange.half_open(None, b"m"), KeyRange.half_open(b"m", None))
    outputs = (sst(START_MS, keys=(b"a", b"b")), sst(START_MS + 1, keys=(b"c", b"\xff")))
    ranges = tuple(Subcompaction(range=half, output_ssts=outputs[:1]) for half in halves)
    ctx = CompactionContext(subcompactions=ranges, retention_min_seq=Seq(7))
    claim = WorkerClaim(worker_id="w", last_heartbeat_ms=1)
    await harness.edit(
        entry(START_MS, spec((8, 7), (6,), to=6), S.COMPACTED, output_ssts=outputs, worker=claim),
        entry(START_MS + 1, spec(runs=(5,), to=5)),
        entry(START_MS + 2, drain(b"s", (12,), (3,)), ctx=ctx),
        entry(START_MS + 3, spec(runs=(4,), to=4), S.FAILED, output_ssts=outputs, ctx=ctx, worker=claim),
    )
    await coordinator.run_round()
    (waiting,) = (job for job in (await harness.stored()).entries if job.status is S.SCHEDULED)
    await harness.edit(replace(waiting, status=S.RUNNING, ctx=ctx, worker=claim))
    for seconds in (0, 31):
        await harness.watch(coordinator, seconds)
        await coordinator.run_round()
        costs.spent()
        await coordinator.run_round()
        assert "put" not in costs.spent()
    assert (await harness.stored()).get(waiting.id) == replace(waiting, ctx=ctx)
