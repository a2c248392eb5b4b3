"""``ManifestPoller`` alone: what it reads, reports and counts, and which errors end it."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from shale.engine.flush.poller import ManifestPoller
from shale.engine.flush.writer_checkpoint import WriterCheckpoint
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.options import DbOptions
from shale.engine.write.instruments import WriterInstruments
from shale.env import Env
from shale.errors import FencedError, InvalidDbState, UnavailableError
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from shale.types import Manifest
from tests.unit.protocol.conftest import run


@dataclass
class Writer:
    """A claimed manifest, the reports of its poller, and the errors of its check."""

    env: Env
    memory: MemoryStore
    store: FaultyStore
    manifest: WriterManifest
    metrics: Metrics = field(default_factory=Metrics)
    told: int = 0
    errors: list[Exception] = field(default_factory=list)

    @classmethod
    async def claim(cls, checkpoint: WriterCheckpoint | None = None) -> "Writer":
        """Claim a new database."""
        env, memory = Env.system(), MemoryStore()
        store = FaultyStore(memory, random.Random(1))
        created = await ManifestStore(store, "db", env).create_new(Manifest())
        fenceable = await FenceableManifest.claim(
            created, WRITER, edit=None if checkpoint is None else checkpoint.claimed
        )
        return cls(env, memory, store, WriterManifest(fenceable, env, lambda: None, checkpoint))

    def poller(self, interval_s: float = 0.001) -> ManifestPoller:
        """A poller of this writer."""
        return ManifestPoller(
            manifest=self.manifest,
            require_alive=self._check,
            interval_s=interval_s,
            on_refreshed=self._on_refreshed,
            instruments=WriterInstruments(self.metrics),
        )

    def others(self) -> ManifestStore:
        """Return the manifests as another process sees them."""
        return ManifestStore(self.memory, "db", self.env)

    @property
    def refreshes(self) -> float | None:
        """Return the number of refreshes that the poller counted."""
        return self.metrics.registry.get_sample_value("slatedb_memtable_flush_manifest_refreshes_total", {"db": ""})

    async def _check(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def _on_refreshed(self) -> None:
        self.told += 1


def with_writer(scenario: Callable[[Writer], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            await scenario(await Writer.claim())

    run(main)


def test_a_refresh_learns_what_others_have_committed_and_tells_it() -> None:
    async def scenario(writer: Writer) -> None:
        made = await create_checkpoint(await writer.others().load(), writer.env, lifetime_ms=None)
        assert writer.manifest.current.checkpoint(made.id) is None
        await writer.poller().refresh()
        assert writer.manifest.current.checkpoint(made.id) == made
        assert (writer.told, writer.refreshes) == (1, 1)

    with_writer(scenario)


def test_a_commit_of_this_process_is_learned_without_waiting_for_the_interval() -> None:
    async def scenario(writer: Writer) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.poller(interval_s=3600).run)
            await anyio.lowlevel.checkpoint()
            made = await create_checkpoint(await writer.others().load(), writer.env, lifetime_ms=None)
            while writer.manifest.current.checkpoint(made.id) is None:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    with_writer(scenario)


def test_a_refresh_replaces_the_checkpoint_of_the_writer_only_if_its_ssts_changed() -> None:
    async def scenario(_: Writer) -> None:
        writer = await Writer.claim(WriterCheckpoint.of_options(DbOptions(), Env.system()))
        assert [entry.manifest_id for entry in writer.manifest.current.checkpoints] == [writer.manifest.id]
        before = writer.manifest.id
        await writer.poller().refresh()
        assert writer.manifest.id == before

    with_writer(scenario)


def test_an_outage_is_no_refresh_and_the_next_one_makes_up_for_it() -> None:
    async def scenario(writer: Writer) -> None:
        poller = writer.poller()
        writer.store.add(Rule(fault=Fault.BEFORE))
        await poller.refresh()
        assert (writer.told, writer.refreshes) == (0, 0)
        await poller.refresh()
        assert (writer.told, writer.refreshes) == (1, 1)

    with_writer(scenario)


def test_a_newer_writer_ends_the_poller() -> None:
    async def scenario(writer: Writer) -> None:
        await FenceableManifest.claim(await writer.others().load(), WRITER)
        with pytest.raises(FencedError):
            await writer.poller().run()
        assert (writer.told, writer.refreshes) == (0, 0)

    with_writer(scenario)


def test_the_marker_of_a_destroy_is_looked_for_after_each_refresh_and_ends_the_poller() -> None:
    async def scenario(writer: Writer) -> None:
        writer.errors = [UnavailableError("no answer"), UnavailableError("no answer"), InvalidDbState("destroyed")]
        with pytest.raises(InvalidDbState, match="destroyed"):
            await writer.poller().run()
        assert (writer.told, writer.refreshes) == (3, 3)

    with_writer(scenario)


def test_nothing_is_asked_before_the_first_interval_is_over() -> None:
    async def scenario(writer: Writer) -> None:
        requests: list[str] = []
        writer.store.observe(lambda request: requests.append(request.op))
        poller = writer.poller(interval_s=3600)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poller.run)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert requests == []

    with_writer(scenario)
