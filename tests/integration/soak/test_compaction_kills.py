"""SIGKILL of the coordinator and of two workers, again and again, while they compact a database.

It finishes, every row is there once for both libraries, and little is done twice: what a worker has published of a job
is never done again, so a kill costs what was merged since its last heartbeat.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from shale.compaction.specs import size_estimate_bytes
from shale.env import Env
from shale.store.connect import connect
from shale.types import Compaction, CompactionStatus
from tests import cas_selection
from tests.integration.daemons.daemon_process import Daemon
from tests.integration.soak.compaction_history import Trail, Watch, check_progress_only_grows, read_trail
from tests.integration.soak.compaction_load import (
    ROW_BYTES,
    Load,
    check_with_shale,
    check_with_slatedb,
    rust_store,
    write,
)
from tests.integration.store.servers import s3_environment, s3_server
from tests.integration.store.versitygw import needs_versitygw, versitygw

BYTES = int(os.environ.get("SHALE_SOAK_BYTES", str(1 << 30)))
SEED = int(os.environ.get("SHALE_SOAK_SEED", "1"))
ROOT = "db"
COORDINATOR = "coordinator"
WORKERS = ("worker-0", "worker-1")
SETTINGS = {
    "compactor_options.poll_interval": "200ms",
    "compactor_options.commit_compacted_interval": "100ms",
    "compactor_options.worker_heartbeat_timeout": "2s",
    "compactor_options.worker.heartbeat_interval": "500ms",
    "compactor_options.worker.compactions_poll_interval": "200ms",
    "compactor_options.scheduler_options.max_compaction_sources": "4",
    "compactor_options.worker.max_concurrent_compactions": "1",
    "compactor_options.worker.persist_every_sst": "true",
    "compactor_options.worker.persist_interval": "100ms",
}


FRUGAL = {"cpu_threads": "1", "compactor_options.worker.memory_bytes": "16MiB"}
"""A worker dies with what it has read ahead and merged of every range; there are two workers on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amount of work, and how often a process is killed.

    A run that holds everything has ``outputs`` SSTs: with a worker go the one or two that it is writing.

    ``pause`` lies between the return of one victim and the next kill, in seconds; after ``kills`` of them the
    processes may finish in peace.  ``repeated_max`` is the share of the work that may be done twice: a kill costs
    about as much as a worker does in a tenth of a second, so the less there is to do, the more that weighs.
    """

    total_bytes: int
    outputs: int = 256
    l0s: int = 32
    pause: tuple[float, float] = (1.0, 3.0)
    kills: int = 1000
    repeated_max: float = 0.1
    limit_s: float = 1800.0
    worker_settings: dict[str, str] = field(default_factory=dict)


LONG = Plan(total_bytes=BYTES)
SLOW = Plan(total_bytes=BYTES, pause=(2.0, 5.0))
"""The S3 server of the tests takes ten megabytes a second."""
SHORT = Plan(
    total_bytes=40 << 20,
    outputs=64,
    l0s=16,
    pause=(0.1, 0.5),
    kills=3,
    repeated_max=0.15,
    limit_s=240.0,
    worker_settings={"compactor_options.worker.compaction_filters": '["tests.integration.soak.slow_filter:Slowly"]'},
)


@dataclass
class Losses:
    """The cost of kills: bytes that were merged and not published."""

    kills: int = 0
    bytes: float = 0.0


@dataclass
class Stack:
    """A coordinator without a worker, and two workers."""

    url: str
    logs: Path
    environment: dict[str, str]
    plan: Plan
    daemons: dict[str, Daemon] = field(default_factory=dict)
    starts: int = 0

    def start(self, role: str) -> None:
        self.starts += 1
        module = "shale_compactor" if role == COORDINATOR else "shale_compactor.worker"
        settings = SETTINGS | {"compactor_options.worker.max_sst_size": str(self.plan.total_bytes // self.plan.outputs)}
        if role != COORDINATOR:
            settings |= FRUGAL | self.plan.worker_settings
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        if role == COORDINATOR:
            options += ["--no-embedded-worker", "--take-over"]
        log = self.logs / f"{role}.{self.starts}"
        self.daemons[role] = Daemon(module, "--url", self.url, *options, log=log, env=self.environment)

    def kill(self, role: str) -> None:
        daemon = self.daemons[role]
        assert daemon.process.poll() is None, f"{role} ended by itself: {daemon.log.read_text()}"
        daemon.process.kill()
        daemon.process.wait()

    def all_ready(self) -> bool:
        """Return whether all processes have started."""
        return all(daemon.lines("daemon.ready") for daemon in self.daemons.values())

    def ratios(self, role: str) -> dict[str, float]:
        """Return the progress of a worker's jobs; empty while it is starting."""
        daemon = self.daemons[role]
        ready = daemon.lines("daemon.ready")
        if role == COORDINATOR or not ready:
            return {}
        _, text = daemon.get("/statusz", port=int(ready[0]["admin_port"]))
        jobs: dict[str, float] = json.loads(text)["jobs"]
        return jobs

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            for role in (COORDINATOR, *WORKERS):
                self.start(role)
            yield
            for daemon in self.daemons.values():
                daemon.wait_for("daemon.ready")
            assert {role: daemon.stop() for role, daemon in self.daemons.items()} == dict.fromkeys(self.daemons, 0)
        finally:
            for daemon in self.daemons.values():
                daemon.process.kill()
                daemon.process.wait()


async def kill_until_settled(stack: Stack, watch: Watch, plan: Plan) -> Losses:
    """Kill one process after the other, at random times after the last restart, until all is compacted.

    Every third victim is the coordinator, the others are workers in the middle of a job.
    """
    rng = random.Random(SEED)
    losses, began = Losses(), time.monotonic()
    next_kill: float | None = None
    while not (now := await watch.now()).is_settled:
        assert time.monotonic() - began < plan.limit_s, f"not settled: {now.compactions}"
        if next_kill is None and stack.all_ready():
            next_kill = time.monotonic() + rng.uniform(*plan.pause)
        elif next_kill is not None and time.monotonic() >= next_kill and losses.kills < plan.kills:
            victims = [COORDINATOR] if losses.kills % 3 == 2 else [role for role in WORKERS if stack.ratios(role)]
            if victims:
                role = rng.choice(victims)
                await kill(stack, role, watch, losses)
                stack.start(role)
                next_kill = None
        await asyncio.sleep(0.1)
    return losses


async def kill(stack: Stack, role: str, watch: Watch, losses: Losses) -> None:
    """Kill a process, and record its merged but unpublished bytes."""
    ratios = stack.ratios(role)
    stack.kill(role)
    now = await watch.now()
    losses.kills += 1
    for entry in now.compactions.entries:
        if str(entry.id) in ratios and entry.status is CompactionStatus.RUNNING:
            merged = ratios[str(entry.id)] * size_estimate_bytes(now.manifest, entry.spec)
            losses.bytes += max(0.0, merged - published_bytes(entry))


def published_bytes(entry: Compaction) -> int:
    subcompactions = entry.ctx.subcompactions if entry.ctx is not None else ()
    return sum(sst.estimated_size_bytes for sub in subcompactions for sst in sub.output_ssts)


def survive(url: str, folder: Path, environment: dict[str, str], plan: Plan) -> str:
    """Run the whole test on one store; return a line of figures."""
    load = Load(rows=plan.total_bytes // ROW_BYTES, l0s=plan.l0s)
    rust = rust_store(url, environment)
    stack = Stack(f"{url}/{ROOT}", folder, environment, plan)

    async def main() -> tuple[Losses, Trail, str]:
        store = connect(url, Env.system())
        try:
            times = [time.monotonic()]
            await write(stack.url, load)
            times.append(time.monotonic())
            with stack.running():
                losses = await kill_until_settled(stack, Watch(store, ROOT), plan)
            times.append(time.monotonic())
            await check_with_shale(stack.url, load)
            if cas_selection.selected() is None:  # SlateDB refuses a database with two-phase creates
                await check_with_slatedb(rust, ROOT, load)
            times.append(time.monotonic())
            took = [f"{after - before:.0f} s" for before, after in pairwise(times)]
            return losses, await read_trail(store, ROOT), "written in {}, compacted in {}, read in {}".format(*took)
        finally:
            await store.aclose()

    losses, trail, times = asyncio.run(main())
    published = sum(check_progress_only_grows(versions) for versions in trail.jobs().values())
    outputs = trail.output_bytes()
    figures = (
        f"{plan.total_bytes >> 20} MiB {times}; {losses.kills} kills; "
        f"{len(trail.jobs())} jobs, {outputs >> 20} MiB in {trail.output_count} SSTs, {published} published early; "
        f"again {losses.bytes / outputs:.1%}, orphaned {trail.orphaned_bytes() / outputs:.1%}"
    )
    assert trail.output_count >= 40, figures
    assert published > 0, figures
    assert losses.kills >= 3, figures
    assert max(losses.bytes, trail.orphaned_bytes()) < plan.repeated_max * outputs, figures
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("plan", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_on_a_directory(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = survive(f"file://{tmp_path}/store", tmp_path, {}, plan)
    with capsys.disabled():
        print("\n" + figures)


def survive_on_s3(
    server: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = s3_environment(server)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    figures = survive("s3://soak", folder, environment, SLOW)
    with capsys.disabled():
        print("\n" + figures)


@pytest.mark.soak
def test_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with s3_server("soak") as server:
        survive_on_s3(server, tmp_path, monkeypatch, capsys)


@needs_versitygw
@pytest.mark.soak
@pytest.mark.native_only("the server of test_on_s3 ignores conditions, this one does not")
def test_on_versitygw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with versitygw("soak", tmp_path / "objects") as server:
        survive_on_s3(server, tmp_path, monkeypatch, capsys)
