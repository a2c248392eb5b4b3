"""Changes on top of the newest version: what is written, what is counted, and how long a loser waits."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.env import Env, InlineCpu
from shale.errors import (
    FencedError,
    InvalidObjectState,
    ObjectUpdateTimeout,
    ObjectVersionBehindBoundary,
    ObjectVersionExists,
    ProtocolPanic,
    UnavailableError,
)
from shale.protocol.compactions_store import COORDINATOR, CompactionsStore
from shale.protocol.manifest_store import COMPACTOR, WRITER, ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.protocol.transactional import EpochTaken, Fenceable, Stored
from shale.protocol.versioned import Versioned
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, Epoch, Manifest, Seq
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run
from tests.unit.protocol.draws import Draws, doubling


def with_seq(manifest: Manifest, seq: int) -> Manifest:
    return replace(manifest, last_l0_seq=Seq(seq))


class Contended(ManifestStore):
    """Another process commits before each of the next writes, or the boundary passes them."""

    def __init__(self, store: MemoryStore, env: Env, metrics: Metrics, options: ProtocolOptions) -> None:
        super().__init__(store, "db", env, metrics, options)
        self.clock: Any = env.clock
        self.errors: list[Exception] = []
        self.others = 0
        self.other = ManifestStore(store, "db", env)
        self.base_reads: list[Versioned[Manifest] | None] = []

    async def commit(self, base_id: int | None, value: Manifest) -> Versioned[Manifest]:
        self.clock.sleep(1)
        if self.errors:
            raise self.errors.pop(0)
        if self.others:
            self.others -= 1
            newest = await self.other.read_latest()
            await self.other.commit(newest.id, with_seq(newest.value, newest.value.last_l0_seq + 1))
        return await super().commit(base_id, value)

    async def read_base(self) -> Versioned[Manifest] | None:
        return self.base_reads.pop(0) if self.base_reads else await super().read_base()


class Process:
    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.draws = Draws()
        self.env = Env(self.clock, self.draws, InlineCpu())
        self.metrics = Metrics()
        self.manifests = Contended(self.memory, self.env, self.metrics, ProtocolOptions(component="writer", **options))

    async def created(self) -> Stored[Manifest]:
        return await self.manifests.create_new(Manifest())

    def attempts(self) -> dict[str, float]:
        """Return the counters of attempts that are not zero."""
        counts = {
            result: self.metrics.registry.get_sample_value(
                "slatedb_manifest_update_attempts_total", {"db": "", "component": "writer", "result": result}
            )
            for result in ("ok", "conflict", "fenced", "stale", "error")
        }
        return {result: count for result, count in counts.items() if count}

    def seconds(self) -> tuple[float | None, float | None]:
        name, labels = "slatedb_manifest_update_duration_seconds", {"db": "", "component": "writer"}
        value = self.metrics.registry.get_sample_value
        return value(f"{name}_count", labels), value(f"{name}_sum", labels)


@pytest.mark.parametrize("conflicts", [0, 1, 3, 6])
def test_a_loser_waits_longer_after_each_conflict(conflicts: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        process.manifests.others = conflicts
        done = await stored.apply(lambda current: replace(current.value, last_l0_clock_tick=current.id))
        assert (done.id, done.value.last_l0_seq, done.value.last_l0_clock_tick) == (
            conflicts + 2,
            conflicts,
            conflicts + 1,
        )
        assert process.draws.limits == pytest.approx(doubling(max(0, conflicts - 3)))
        assert process.attempts() == {"ok": 1} | ({"conflict": conflicts} if conflicts else {})
        assert process.seconds() == (1, conflicts + 1)

    with caplog.at_level(logging.DEBUG):
        run(main)
    logged = [line for record in caplog.records if "manifest.update.conflict" in (line := record.getMessage())]
    assert len(logged) == conflicts


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ObjectVersionExists("lost"), "conflict"),
        (ObjectVersionBehindBoundary(2, 2), "stale"),
        (FencedError("fenced"), "fenced"),
        (UnavailableError("away"), "error"),
    ],
    ids=["conflict", "stale", "fenced", "error"],
)
def test_each_attempt_is_counted_by_its_result(error: Exception, result: str) -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        process.manifests.errors = [error]
        with pytest.raises(type(error)):
            await stored.update(Versioned(1, with_seq(stored.value, 5)))
        assert process.attempts() == {result: 1}
        assert (stored.id, process.seconds()[0]) == (1, 0)
        await stored.update(Versioned(1, with_seq(stored.value, 5)))
        assert process.attempts() == {result: 1, "ok": 1}
        assert (stored.id, stored.value.last_l0_seq) == (2, 5)

    run(main)


@pytest.mark.parametrize("conflicts", [1, 5])
def test_a_write_behind_the_boundary_is_tried_again_after_a_refresh(
    conflicts: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        process.manifests.errors = [ObjectVersionBehindBoundary(2, 2) for _ in range(conflicts)]
        assert (await stored.apply(lambda current: with_seq(current.value, 5))).id == 2
        assert process.draws.limits == pytest.approx(doubling(max(0, conflicts - 3)))
        assert process.attempts() == {"ok": 1, "stale": conflicts}

    with caplog.at_level(logging.DEBUG):
        run(main)
    assert len([1 for record in caplog.records if "manifest.update.conflict" in record.getMessage()]) == conflicts


@pytest.mark.parametrize(("repeats", "last_id"), [(False, 2), (True, 3)])
def test_an_equal_value_after_a_conflict_is_our_own_write(repeats: bool, last_id: int) -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        process.manifests.others = 1
        done = await stored.apply(lambda current: with_seq(current.value, 1), repeats=repeats)
        assert done.id == last_id
        assert len(await process.manifests.list_versions()) == last_id

    run(main)


def test_an_equal_value_without_a_conflict_is_written() -> None:
    """A version without a change means that a writer has closed."""

    async def main() -> None:
        process = Process()
        stored = await process.created()
        assert (await stored.apply(lambda current: current.value)).id == 2

    run(main)


def test_a_vanished_base_is_an_error() -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        await stored.apply(lambda current: with_seq(current.value, 5))
        process.memory.objects.pop(process.manifests.namespace.key(2))
        process.clock.sleep(100)
        for call in (stored.refresh, stored.catch_up):
            with pytest.raises(InvalidObjectState, match=r"version 2 was the latest and is missing; .* now 1"):
                await call()
        process.memory.objects.clear()
        process.clock.sleep(100)
        with pytest.raises(InvalidObjectState, match="the latest is now None") as caught:
            await stored.refresh()
        assert caught.value.path == "db/manifest/"

    run(main)


@pytest.mark.parametrize("base", [None, Versioned(1, Manifest())])
def test_an_older_base_is_not_adopted_without_a_refresh(base: Versioned[Manifest] | None) -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        await stored.apply(lambda current: with_seq(current.value, 5))
        other = await process.manifests.other.load()
        await other.apply(lambda current: with_seq(current.value, 6))
        process.manifests.base_reads = [base]
        await stored.catch_up()
        assert (stored.id, stored.value.last_l0_seq) == (3, 6)

    run(main)


def test_a_base_that_was_adopted_without_the_boundary_is_compared_before_it_is_returned() -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        other = await process.manifests.other.load()
        await other.apply(lambda current: with_seq(current.value, 6))
        await stored.catch_up()
        assert stored.id == 2
        await process.manifests.other.advance_boundary(2)
        with pytest.raises(InvalidObjectState, match="at or above"):
            await stored.apply(lambda _: None)

    run(main)


def test_a_refresh_adopts_the_newest_version() -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        older = await process.manifests.load()
        await stored.apply(lambda current: with_seq(current.value, 5))
        assert (older.id, older.value.last_l0_seq) == (1, 0)
        assert (await older.refresh()) is older.current
        assert older.current == stored.current
        assert older.store is process.manifests

    run(main)


def test_a_claim_only_after_an_epoch() -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        first = await Fenceable.claim(stored, WRITER, only_after=Epoch(0))
        assert first.epoch == 1
        for only_after in (0, 2):
            with pytest.raises(EpochTaken, match=f"writer epoch 1 was claimed after {only_after}; a database has one"):
                await Fenceable.claim(await process.manifests.load(), WRITER, only_after=Epoch(only_after))
        assert (await process.manifests.read_latest()).id == first.id
        assert (await Fenceable.claim(await process.manifests.load(), WRITER, only_after=Epoch(1))).epoch == 2

    run(main)


def test_a_claim_can_change_more_than_the_epoch() -> None:
    async def main() -> None:
        process = Process()
        stored = await process.created()
        process.manifests.others = 1
        owner = await Fenceable.claim(
            stored, WRITER, edit=lambda value, epoch, version: with_seq(value, 100 * version + epoch)
        )
        assert (owner.id, owner.epoch, owner.value.writer_epoch, owner.value.last_l0_seq) == (3, 1, 1, 301)

    run(main)


def test_a_claim_ends_with_its_time() -> None:
    class Slow(MemoryStore):
        is_slow = False

        async def put(self, *args: Any, **options: Any) -> Any:
            if self.is_slow:
                await anyio.sleep_forever()
            return await super().put(*args, **options)

    async def main() -> None:
        store, env = Slow(), Env(ManualClock(), Draws(), InlineCpu())
        manifests = ManifestStore(store, "db", env, options=ProtocolOptions(manifest_update_timeout_s=0.0))
        stored = await manifests.create_new(Manifest())
        store.is_slow = True
        with pytest.raises(ObjectUpdateTimeout, match=r"no writer epoch within 0.0 s: db/manifest/"):
            await Fenceable.claim(stored, WRITER)

    run(main)


def test_each_use_of_an_older_owner_is_counted_as_fenced() -> None:
    async def main() -> None:
        process = Process()
        old = await Fenceable.claim(await process.created(), WRITER)
        await Fenceable.claim(await process.manifests.other.load(), WRITER)
        other = await Fenceable.claim(await process.manifests.other.load(), COMPACTOR)
        await other.refresh()
        assert other.epoch == 1, "the roles have epochs of their own"
        with pytest.raises(FencedError, match="writer epoch 1 was superseded by 2; a database has one writer"):
            await old.refresh()
        assert process.attempts() == {"ok": 1, "fenced": 1}

    run(main)


def test_an_epoch_that_went_back_is_named() -> None:
    async def main() -> None:
        process = Process()
        owner = await Fenceable.claim(await process.created(), WRITER)
        restored = process.manifests.namespace.encode(Manifest())
        await process.memory.put(process.manifests.namespace.key(owner.id + 1), restored)
        with pytest.raises(ProtocolPanic, match="epoch went backwards"):
            await owner.refresh()
        assert process.attempts() == {"ok": 1}

    run(main)


@pytest.mark.parametrize(("newest", "is_fenced"), [(4, False), (5, True), (6, True)])
def test_an_epoch_that_was_claimed_elsewhere_is_above_the_stored_one(newest: int, is_fenced: bool) -> None:
    async def main() -> None:
        env = Env(ManualClock(), Draws(), InlineCpu())
        compactions = CompactionsStore(MemoryStore(), "db", env)
        stored = await compactions.create_new(Compactions(compactor_epoch=Epoch(newest)))
        if is_fenced:
            with pytest.raises(FencedError, match=f"compactor epoch 5 was superseded by {newest}"):
                await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(5))
            assert stored.id == 1
        else:
            owner = await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(5))
            assert (owner.id, owner.epoch, owner.value.compactor_epoch) == (2, 5, 5)

    run(main)


def test_an_epoch_that_another_process_took_after_a_conflict_fences() -> None:
    """Only an equal epoch is our own write."""

    async def main() -> None:
        env = Env(ManualClock(), Draws(), InlineCpu())
        memory = MemoryStore()
        compactions, other = CompactionsStore(memory, "db", env), CompactionsStore(memory, "db", env)
        stored = await compactions.load_or_create()
        await Fenceable.claim_epoch(await other.load_or_create(), COORDINATOR, Epoch(6))
        with pytest.raises(FencedError, match="superseded by 6"):
            await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(5))

    run(main)


def test_the_first_compactions_file_of_another_process_is_loaded() -> None:
    class Overtaken(MemoryStore):
        is_overtaken = False

        async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Any]:
            async for page in super().list_pages(prefix, after=after):
                yield page
            if not self.is_overtaken:
                self.is_overtaken = True
                env = Env(ManualClock(), Draws(), InlineCpu())
                await CompactionsStore(self, "db", env).create_new(Compactions(compactor_epoch=Epoch(3)))

    async def main() -> None:
        compactions = CompactionsStore(Overtaken(), "db", Env(ManualClock(), Draws(), InlineCpu()))
        stored = await compactions.load_or_create()
        assert (stored.id, stored.value.compactor_epoch) == (1, 3)
        again = await compactions.load_or_create()
        assert (again.id, again.value.compactor_epoch) == (1, 3)

    run(main)
