"""Large manifests and compactions are encoded and decoded outside of the event loop."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from shale.env import Env
from shale.store.memory import MemoryStore
from shale.types import Manifest, RunId, SortedRun, Tree
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import Process, run
from tests.unit.protocol.values import run_of, view

T = TypeVar("T")


class CountingCpu:
    """Runs work immediately and counts it."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.calls += 1
        return work()


def world_of(cpu: CountingCpu) -> tuple[Process, Process]:
    clock = ManualClock()
    store = MemoryStore(clock)
    env = Env(clock, random.Random(1), cpu)
    return Process(store, env), Process(store, env)


def test_a_large_manifest_is_no_work_for_the_loop() -> None:
    async def scenario() -> None:
        cpu = CountingCpu()
        writer, reader = world_of(cpu)
        small = Manifest(tree=Tree(compacted=(run_of(1, 5),)))
        large = Manifest(tree=Tree(compacted=(SortedRun(id=RunId(1), ssts=tuple(view(ms) for ms in range(5000))),)))

        stored = await writer.manifests.create_new(small)
        assert (await reader.manifests.read_latest()).value == small
        assert cpu.calls == 0

        await stored.apply(lambda _current: large)
        cpu.calls = 0
        assert (await reader.manifests.read_latest()).value == large
        assert cpu.calls == 1, "decoded once"
        assert (await reader.manifests.read_latest()).value == large
        assert cpu.calls == 1, "what is known is not decoded again"

        await stored.apply(lambda current: Manifest(tree=current.value.tree, last_l0_clock_tick=7))
        assert cpu.calls == 2, "what follows a large value is large, probably, and encoded beside the loop"

    run(scenario)


def test_a_store_does_not_decode_what_it_wrote() -> None:
    async def scenario() -> None:
        writer, reader = world_of(CountingCpu())
        stored = await writer.manifests.create_new(Manifest(tree=Tree(compacted=(run_of(1, 5),))))
        written = stored.value
        assert (await stored.refresh()).value is written
        assert (await reader.manifests.read_latest()).value == written

    run(scenario)


def test_a_store_decodes_what_it_wrote_if_that_loses_fields() -> None:
    async def scenario() -> None:
        writer, _ = world_of(CountingCpu())
        old = Manifest(wal_object_store_uri="s3://elsewhere/wal", tree=Tree(compacted=(run_of(1, 5),)))
        stored = await writer.manifests.create_new(old)
        assert (await stored.refresh()).value == replace(old, wal_object_store_uri=None)

    run(scenario)
