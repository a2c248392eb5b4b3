"""Traces T3 of docs/reference/protocol.md 3.9, epochs, and which process notices which change."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.errors import (
    FencedError,
    InvalidObjectState,
    ObjectVersionExists,
    ProtocolPanic,
)
from shale.format.names import manifest_key
from shale.protocol.backoff import conflict_delay_s
from shale.protocol.compactions_store import COORDINATOR
from shale.protocol.manifest_store import COMPACTOR, WRITER
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.types import Compactions, Epoch, Manifest, Seq
from tests.unit.protocol.conftest import ROOT, Process, World, run


async def created(process: Process) -> None:
    await process.manifests.create_new(Manifest())


class Counted:
    """A store that records the name of every request."""

    def __init__(self, store: Any, requests: list[str]) -> None:
        self._store = store
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        if name == "list_pages":
            self._requests.append("list")
            return found

        async def counted(*args: Any, **options: Any) -> Any:
            self._requests.append(name)
            return await found(*args, **options)

        return counted


def test_epochs_begin_with_one_and_change_nothing_else(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await created(a)
        before = await a.manifests.load()
        writer = await Fenceable.claim(before, WRITER)
        assert (writer.epoch, writer.id) == (1, 2)
        assert writer.value == replace(Manifest(), writer_epoch=Epoch(1))
        compactor = await Fenceable.claim(await a.manifests.load(), COMPACTOR)
        assert (compactor.epoch, compactor.value.writer_epoch) == (1, 1)

    run(main)


def test_t3c_an_old_writer_is_fenced_by_its_first_lost_update(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await created(a)
        old = await Fenceable.claim(await a.manifests.load(), WRITER)
        dirty = old.prepare_dirty()
        new = await Fenceable.claim(await b.manifests.load(), WRITER)
        with pytest.raises(ObjectVersionExists):
            await old.update(Versioned(dirty.id, replace(dirty.value, last_l0_seq=Seq(5))))
        with pytest.raises(FencedError):
            await old.refresh()
        with pytest.raises(FencedError):
            old.prepare_dirty()
        with pytest.raises(FencedError):
            await old.update(dirty)
        assert new.epoch == 2
        assert (await world.process().manifests.read_latest()).id == new.id
        results = "slatedb_manifest_update_attempts_total"
        assert a.metric(results, component="admin", result="conflict") == 1
        assert a.metric(results, component="admin", result="fenced") == 3

    run(main)


def test_apply_meets_the_newer_epoch_and_is_not_retried(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await created(a)
        old = await Fenceable.claim(await a.manifests.load(), WRITER)
        await Fenceable.claim(await b.manifests.load(), WRITER)
        with pytest.raises(FencedError):
            await old.apply(lambda current: replace(current.value, last_l0_seq=Seq(5)))

    run(main)


def test_t3d_an_epoch_that_went_backwards_is_a_panic(world: World) -> None:
    async def main() -> None:
        a, tool = world.process(), world.process()
        await created(a)
        writer = await Fenceable.claim(await a.manifests.load(), WRITER)
        await world.memory.put(manifest_key(ROOT, writer.id + 1), tool.manifests.namespace.encode(Manifest()))
        with pytest.raises(ProtocolPanic, match="epoch went backwards"):
            await writer.refresh()

    run(main)


def test_an_update_derived_from_another_version_costs_no_request(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await created(a)
        stored = await a.manifests.load()
        with pytest.raises(ObjectVersionExists):
            await stored.update(Versioned(7, Manifest()))
        assert [version.id for version in await a.manifests.list_versions()] == [1]

    run(main)


def test_apply_writes_nothing_when_there_is_nothing_to_do(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await created(a)
        stored = await a.manifests.load()
        assert (await stored.apply(lambda _: None)).id == 1
        assert [version.id for version in await a.manifests.list_versions()] == [1]

    run(main)


def test_what_is_found_after_a_conflict_is_not_believed_before_the_boundary_is_asked(world: World) -> None:
    """A write checks the boundary after its create. A writer without a write has not checked yet."""

    async def main() -> None:
        a, b = world.process(), world.process()
        await created(a)
        stored = await a.manifests.load()
        other = await b.manifests.load()
        await other.apply(lambda current: replace(current.value, last_l0_seq=Seq(5)))
        await b.manifests.advance_boundary(2)
        seen = []

        def change(current: Versioned[Manifest]) -> Manifest | None:
            seen.append(current.id)
            return replace(current.value, last_l0_seq=Seq(5)) if current.value.last_l0_seq < 5 else None

        with pytest.raises(InvalidObjectState, match="boundary"):
            await stored.apply(change)
        assert seen == [1, 2]

    run(main)


def test_apply_goes_on_from_a_newer_version_with_few_requests(world: World) -> None:
    """The lost create, the proof that another process wrote it, two concurrent reads, the create, and the boundary."""

    async def main() -> None:
        requests: list[str] = []
        a, b = world.process(through=lambda memory: Counted(memory, requests)), world.process()
        await created(a)
        stored = await a.manifests.load()
        other = await b.manifests.load()
        await other.apply(lambda current: replace(current.value, last_l0_seq=Seq(5)))
        requests.clear()
        done = await stored.apply(lambda current: replace(current.value, last_l0_clock_tick=current.id))
        assert (done.id, done.value.last_l0_seq) == (3, 5)
        assert requests == ["put", "head", "get", "get", "put", "get"]

    run(main)


def test_catching_up_with_nothing_newer_reads_no_boundary(world: World) -> None:
    """A process that is careful before each write pays for it with each write."""

    async def main() -> None:
        requests: list[str] = []
        a = world.process(through=lambda memory: Counted(memory, requests))
        await created(a)
        stored = await a.manifests.load()
        requests.clear()
        await stored.catch_up()
        assert (stored.id, requests) == (1, ["get", "get"])

    run(main)


def test_a_refused_create_with_nothing_newer_reads_the_boundary(world: World) -> None:
    """An id that was deleted may be refused as one that exists: the boundary tells it, the next id never does."""

    async def main() -> None:
        requests: list[str] = []
        a = world.process(through=lambda memory: Counted(memory, requests))
        await created(a)
        stored = await a.manifests.load()
        commit, refusals = a.manifests.commit, 0

        async def refused_once(base_id: int | None, value: Manifest) -> Versioned[Manifest]:
            nonlocal refusals
            refusals += 1
            if refusals == 1:
                raise ObjectVersionExists("no such version")
            return await commit(base_id, value)

        a.manifests.commit = refused_once  # type: ignore[method-assign]
        requests.clear()
        done = await stored.apply(lambda current: replace(current.value, last_l0_seq=Seq(5)))
        assert (done.id, refusals) == (2, 2)
        assert requests == ["get"] * 4 + ["put", "get"]

    run(main)


def test_refresh_of_a_vanished_database(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await created(a)
        stored = await a.manifests.load()
        await world.memory.delete(manifest_key(ROOT, 1))
        world.clock.sleep(100)
        with pytest.raises(InvalidObjectState):
            await stored.refresh()

    run(main)


@pytest.mark.parametrize("stored_epoch", [5, 6])
def test_a_compactor_epoch_that_is_taken_fences(world: World, stored_epoch: int) -> None:
    """The older compactor's claim in the compactions file conflicts with the newer epoch."""

    async def main() -> None:
        a = world.process()
        await a.compactions.create_new(Compactions(compactor_epoch=Epoch(stored_epoch)))
        with pytest.raises(FencedError):
            await Fenceable.claim_epoch(await a.compactions.load(), COORDINATOR, Epoch(5))

    run(main)


def test_claiming_a_compactor_epoch_leaves_gaps(world: World) -> None:
    async def main() -> None:
        a = world.process()
        owner = await Fenceable.claim_epoch(await a.compactions.load_or_create(), COORDINATOR, Epoch(5))
        assert (owner.epoch, owner.value.compactor_epoch, owner.id) == (5, 5, 2)

    run(main)


class LosesAnswers:
    """A store without metadata that applies a put and then reports a conflict, as a repeated put would."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.lose = 0

    supports_attributes = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def put(self, key: str, data: bytes, **kwargs: object) -> object:
        kwargs.pop("attributes", None)
        if self.lose:
            self.lose -= 1
            await self.inner.put(key, data, **kwargs)  # type: ignore[attr-defined]
        return await self.inner.put(key, data, **kwargs)  # type: ignore[attr-defined]


def test_an_own_claim_whose_answer_was_lost_is_recognised(world: World) -> None:
    async def main() -> None:
        losing = LosesAnswers(world.memory)
        a = world.process(through=lambda _: losing)
        stored = await a.compactions.load_or_create()
        losing.lose = 1
        owner = await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(3))
        assert (owner.epoch, owner.id) == (3, 2)

    run(main)


def test_a_manifest_claim_whose_answer_was_lost_is_made_twice(world: World) -> None:
    async def main() -> None:
        losing = LosesAnswers(world.memory)
        a = world.process(through=lambda _: losing)
        await created(a)
        losing.lose = 1
        owner = await Fenceable.claim(await a.manifests.load(), WRITER)
        assert (owner.epoch, owner.id) == (2, 3)
        await owner.refresh()

    run(main)


def test_two_tasks_of_one_process_do_not_move_it_back(world: World) -> None:
    async def main() -> None:
        a = world.process()
        await created(a)
        stored = await a.manifests.load()

        async def bump() -> None:
            await stored.apply(lambda current: replace(current.value, last_l0_seq=Seq(current.value.last_l0_seq + 1)))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(bump)
        assert (stored.id, stored.value.last_l0_seq) == (9, 8)

    run(main)


def test_the_delay_grows_after_three_free_conflicts(world: World) -> None:
    rng = world.process().env.rng
    limits = [max(conflict_delay_s(conflicts, rng) for _ in range(500)) for conflicts in range(1, 12)]
    assert limits[:3] == [0.0, 0.0, 0.0]
    assert 0.03 < limits[3] <= 0.05
    assert 0.06 < limits[4] <= 0.1
    assert max(limits) <= 1.0


def test_gauges_describe_the_newest_manifest(world: World) -> None:
    async def main() -> None:
        a, b = world.process(), world.process()
        await created(a)
        await (await b.manifests.load()).apply(lambda current: replace(current.value, last_l0_seq=Seq(3)))
        await a.manifests.read_latest()
        for process in (a, b):
            assert process.metric("slatedb_manifest_id") == 2
            assert process.metric("slatedb_manifest_bytes") > 0
        assert b.metric("slatedb_manifest_written_timestamp_seconds") == world.clock.ms / 1000

    run(main)
