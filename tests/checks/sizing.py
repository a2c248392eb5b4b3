"""Compare the formulas of docs/how-to/operate/sizing.md with a run: ``make sizing-check`` (not in the default tests).

Five daemons work on a directory, with two configurations one after the other.  Each is filled, read at random, and
written to without a compactor until writes wait, which is when a writer and a reader need most.  Then the compactor and
the worker catch up.  Printed is the greatest resident memory of each process (``VmHWM`` of Linux) as a share of its
formula, which is read from the page.  More than a fifth away from 1 fails.
"""

import asyncio
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shale.client import Client, Ops
from shale.errors import UnavailableError
from tests.integration.daemons.daemon_process import Daemon, metric, running
from tests.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-to" / "operate" / "sizing.md"
MIB = 1 << 20
BOUND = 0.2
VALUE_BYTES = 1000
ROWS = 1000
"""Rows of one request."""
CLIENTS = 4
BODY_BYTES = ROWS * (VALUE_BYTES + 20)
PHASE_S = 600.0
SAMPLE_S = 0.25
PASSES = "garbage_collector_options."
_ROW = re.compile(r"^\| (writer|reader|worker|compactor|gc) \| (\d[^|]*?) \|$", re.MULTILINE)
_PRODUCT = re.compile(r"(\d+(?:\.\d+)?) (×|bytes per) ")


@dataclass(frozen=True)
class Configuration:
    """The settings that the formulas name, in MiB, and the data that fills the caches."""

    name: str
    max_unflushed: int
    l0_sst_size: int
    block_cache: int
    worker_memory: int

    @property
    def data_bytes(self) -> int:
        """As many bytes of rows as fill the caches."""
        return self.block_cache * MIB * 3 // 2

    def options(self, module: str) -> list[str]:
        """Return the options of a daemon."""
        sizes = {
            "shale_writer": {
                "max_unflushed_bytes": f"{self.max_unflushed}MiB",
                "l0_sst_size_bytes": f"{self.l0_sst_size}MiB",
                "block_cache_bytes": f"{self.block_cache}MiB",
                "http.request_timeout": "5s",
            },
            "shale_reader": {"block_cache_bytes": f"{self.block_cache}MiB", "manifest_poll_interval": "1s"},
            "shale_compactor": {"embedded_worker": "false", **self._worker},
            "shale_compactor.worker": self._worker,
            "shale_gc": {
                f"{PASSES}{task}_options.{name}": text
                for task in ("manifest", "wal", "compacted", "compactions")
                for name, text in (("interval", "20s"), ("min_age", "60s"))
            },
        }
        ports = ["--port", "0"] if module in ("shale_writer", "shale_reader") else []
        return [*ports, *(word for name, text in sizes[module].items() for word in ("--set", f"{name}={text}"))]

    @property
    def _worker(self) -> dict[str, str]:
        return {
            "compactor_options.worker.memory_bytes": f"{self.worker_memory}MiB",
            "compactor_options.worker.compactions_poll_interval": "1s",
            "compactor_options.poll_interval": "1s",
        }


CONFIGURATIONS = (
    Configuration("small", max_unflushed=64, l0_sst_size=8, block_cache=32, worker_memory=32),
    Configuration("large", max_unflushed=160, l0_sst_size=20, block_cache=96, worker_memory=64),
)


def formulas() -> dict[str, str]:
    """Return the formula of each process, as the page has it."""
    return dict(_ROW.findall(PAGE.read_text()))


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """Return the bytes of a formula: terms with a plus between them, each with an optional factor.

    Args:
        formula: of the page, such as ``80 MiB + 2 × `block_cache_bytes```.
        values: bytes by name, as the formula has it.

    Raises:
        KeyError: the formula has a name without a value.
    """
    total = 0.0
    for term in re.split(r" \+ (?![^(]*\))", formula):
        fixed = re.fullmatch(r"(\d+) MiB", term)
        if fixed is not None:
            total += int(fixed[1]) * MIB
            continue
        factor = _PRODUCT.match(term)
        name = term[factor.end() :] if factor else term
        total += (float(factor[1]) if factor else 1) * values[name.strip("`()")]
    return total


class Run:
    """One configuration, its processes, and what they hold at most."""

    def __init__(self, configuration: Configuration, folder: Path, stack: ExitStack) -> None:
        self._configuration = configuration
        self._folder = folder
        self._stack = stack
        self._rng = random.Random(4)
        self._rows = 0
        self._daemons: dict[str, Daemon] = {}
        self._replayed = 0.0
        self.peaks: dict[str, int] = {}

    async def measure(self) -> None:
        """Go through all phases, and look at the rows in the reader all the time."""
        work = asyncio.create_task(self._work())
        while not work.done():
            await asyncio.wait([work], timeout=SAMPLE_S)
            if "shale_reader" in self._daemons:
                await asyncio.to_thread(self._replay)
        await work

    async def _work(self) -> None:
        for module in ("shale_writer", "shale_compactor", "shale_gc", "shale_reader"):
            self._start(module)
        self._start("shale_compactor.worker")
        async with self._client("shale_writer") as writer, self._client("shale_reader") as reader:
            await self._phase("fill", self._write(writer, lambda: self._bytes >= self._configuration.data_bytes))
            await self._phase("read", self._read(writer, reader))
            for module in ("shale_compactor", "shale_compactor.worker"):
                self._end(module)
            limit = 0.9 * self._configuration.max_unflushed * MIB
            await self._phase("write until writes wait", self._write(writer, lambda: self._unflushed() >= limit))
            await self._phase("replay", self._until(lambda: self._replay() >= limit))
            for module in ("shale_compactor", "shale_compactor.worker"):
                self._start(module)
            await self._phase("catch up", self._until(self._is_compacted))
            await self._phase("read again", self._read(writer, reader))
        for module in list(self._daemons):
            self._end(module)

    def values(self) -> dict[str, float]:
        """Return what the names in the formulas stand for."""
        configuration = self._configuration
        return {
            "max_unflushed_bytes": configuration.max_unflushed * MIB,
            "block_cache_bytes": configuration.block_cache * MIB,
            "request bodies": CLIENTS * BODY_BYTES,
            "rows of the WAL that are not in L0": self._replayed,
            "compactor_options.worker.memory_bytes": configuration.worker_memory * MIB,
            "version": len(list((self._folder / "store/orders/manifest").iterdir())),
            "SST in use": len(list((self._folder / "store/orders/compacted").iterdir())),
            "one manifest": max(each.stat().st_size for each in (self._folder / "store/orders/manifest").iterdir()),
        }

    @property
    def _bytes(self) -> int:
        return self._rows * (VALUE_BYTES + 20)

    def _start(self, module: str) -> None:
        url = f"file://{self._folder}/store/orders"
        options = ["--url", url, *self._configuration.options(module)]
        log = self._folder / f"{module}.log"
        log.unlink(missing_ok=True)
        daemon = self._stack.enter_context(running(module, *options, log=log, is_fresh=True))
        daemon.wait_for("daemon.ready", PHASE_S)
        self._daemons[module] = daemon

    def _end(self, module: str) -> None:
        daemon = self._daemons.pop(module)
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
        self.peaks[module] = max(peak, self.peaks.get(module, 0))
        assert daemon.stop() == 0, daemon.log.read_text()[-2000:]

    def _client(self, module: str) -> Client:
        return Client(f"http://127.0.0.1:{self._daemons[module].port('port')}", attempts=1)

    def _metric(self, module: str, name: str) -> float:
        daemon = self._daemons[module]
        return metric(daemon.get("/metrics", port=daemon.port("admin_port"))[1], name)

    def _unflushed(self) -> float:
        return self._metric("shale_writer", "slatedb_db_unflushed_bytes")

    def _replay(self) -> float:
        try:
            found = self._metric("shale_reader", "slatedb_reader_memtable_bytes")
        except (KeyError, OSError):  # it ends
            return 0.0
        self._replayed = max(self._replayed, found)
        return found

    def _is_compacted(self) -> bool:
        few = self._metric("shale_writer", "slatedb_db_l0_ssts") < 4
        return few and self._unflushed() < 2 * self._configuration.l0_sst_size * MIB

    async def _phase(self, name: str, work: Awaitable[None]) -> None:
        begin_s = time.monotonic()
        await asyncio.wait_for(work, PHASE_S)
        sys.stdout.write(f"  {name}: {time.monotonic() - begin_s:.0f} s, {self._bytes // MIB} MiB written so far\n")
        sys.stdout.flush()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - another process cannot set an event
            await asyncio.sleep(0.5)

    async def _write(self, client: Client, is_enough: Callable[[], bool]) -> None:
        async def one() -> None:
            while not is_enough():
                first, self._rows = self._rows, self._rows + ROWS
                ops = Ops()
                for number in range(first, first + ROWS):
                    ops.put(b"%016d" % (number * 7919 % 10**12), self._rng.randbytes(VALUE_BYTES))
                try:
                    await client.batch(ops)
                except UnavailableError:  # it waits for L0; some rows are tried again under other keys
                    await asyncio.sleep(0.5)

        await asyncio.gather(*(one() for _ in range(CLIENTS)))

    async def _read(self, *clients: Client) -> None:
        blocks = self._configuration.block_cache * MIB // 4096
        for _ in range(3 * blocks // ROWS + 1):
            keys = [b"%016d" % (self._rng.randrange(self._rows) * 7919 % 10**12) for _ in range(ROWS)]
            await asyncio.gather(*(client.get_many(keys) for client in clients))


def main() -> int:
    """Measure all configurations; return 1 if a formula does not hold."""
    is_wrong = False
    for configuration in CONFIGURATIONS:
        sys.stdout.write(f"{configuration}\n")
        folder = Path(tempfile.mkdtemp(prefix="shale-sizing-"))
        try:
            with ExitStack() as stack:
                run = Run(configuration, folder, stack)
                asyncio.run(run.measure())
                values = run.values()
        finally:
            shutil.rmtree(folder)
        found = formulas()
        sys.stdout.write(
            f"  at most {values['rows of the WAL that are not in L0'] / MIB:.0f} MiB of rows in the reader\n"
        )
        for module, peak in run.peaks.items():
            name = module.removeprefix("shale_").removeprefix("compactor.")
            expected = evaluate(found[name], values)
            ratio = peak / expected
            is_wrong |= abs(ratio - 1) > BOUND
            sys.stdout.write(
                f"  {name:10} formula {expected / MIB:6.0f} MiB, peak {peak / MIB:6.0f} MiB, ratio {ratio:.2f}"
                f"{'  WRONG' if abs(ratio - 1) > BOUND else ''}\n"
            )
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
