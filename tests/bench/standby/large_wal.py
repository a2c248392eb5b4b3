"""How long a takeover takes if the old writer leaves 200 MB of rows in the WAL, in about a thousand files.

Each case with a standby that keeps the rows of the WAL in memory, and as a reference with one that reads them at the
takeover.  The third store answers each request 50 ms later.
"""

import random
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

import shale
from shale.store.options import StoreOptions
from tests.bench.line import BenchLine
from tests.bench.standby.failover import CASES, seconds_to_takeover
from tests.bench.standby.slow_store import delayed
from tests.integration.daemons.daemon_process import metric
from tests.integration.standby.standby_process import Member
from tests.integration.store.servers import SECRET, s3_environment, s3_server
from tests.integration.store.versitygw import find_versitygw, versitygw

SIZE_BYTES = 200_000_000
VALUE_BYTES = 1000
FILE_BYTES = 200_000
LATENCY_S = 0.05
LARGE = ("--set", "l0_sst_size_bytes=1GiB", "--set", "max_unflushed_bytes=2GiB", "--set", "flush_interval=100ms")
FILLED_S = 120.0
MB = 1e6


@dataclass(frozen=True)
class Place:
    """A database with a long WAL; ``near`` is its URL's server without the latency."""

    name: str
    url: str
    near: Mapping[str, str]
    environment: Mapping[str, str]


def large_wal_lines() -> Iterator[BenchLine]:
    """Measure each case on each store."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if find_versitygw() is None:
            server = stack.enter_context(s3_server("failover"))
        else:
            server = stack.enter_context(versitygw("failover", folder / "objects"))
        far = stack.enter_context(delayed(server, LATENCY_S))
        near = s3_environment(server)
        places = (
            Place("a directory", f"file://{folder}/store/db", {}, {}),
            Place("S3", "s3://failover/near", near, near),
            Place("S3 + 50 ms", "s3://failover/far", near, s3_environment(far)),
        )
        for place in places:
            anyio.run(partial(_fill, place))
            yield from _lines(place, folder)


async def _fill(place: Place) -> None:
    """Write a database whose rows are all in the WAL."""
    config = {}
    if place.near:
        config = {
            "endpoint": place.near["AWS_ENDPOINT"],
            "access_key_id": SECRET,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "allow_http": "true",
        }
    db = await shale.Db.open(
        place.url,
        store_options=StoreOptions(config=config),
        l0_sst_size_bytes=4 * SIZE_BYTES,
        max_unflushed_bytes=8 * SIZE_BYTES,
        wal_flush_bytes=FILE_BYTES,
        compactor=False,
        gc=False,
    )
    rng = random.Random(1)
    for _ in range(SIZE_BYTES // VALUE_BYTES):
        await db.put(b"%016x" % rng.getrandbits(64), rng.randbytes(VALUE_BYTES))
    await db.close(flush="wal")


def _lines(place: Place, folder: Path) -> Iterator[BenchLine]:
    for what in ("a clean stop", "SIGKILL"):
        sent, limit_s = CASES[what]
        measured: list[tuple[float, float]] = []
        for cache in ("512MiB", "0"):
            memory: list[float] = []
            options = (*LARGE, "--set", f"standby.wal_cache_bytes={cache}")
            filled = partial(_wait_until_warm, memory, is_warm=cache != "0")
            taken_s = seconds_to_takeover(place.url, folder, dict(place.environment), sent, options, filled)
            measured.append((taken_s, memory[0]))
        (warm_s, warm_mb), (cold_s, cold_mb) = measured
        name = f"{what}, 200 MB of WAL, {place.name}"
        yield BenchLine(name=name, ours=warm_s, reference=cold_s, unit="s", target=f"at most {limit_s:g} s")
        if sent is signal.SIGKILL:
            memory_name = f"memory of that standby, {place.name}"
            yield BenchLine(name=memory_name, ours=warm_mb, reference=cold_mb, unit="MB", target="shown")


def _wait_until_warm(memory: list[float], standby: Member, *, is_warm: bool) -> None:
    """Wait until the standby has the rows in memory, and record the memory of the process in MB."""
    deadline_s = time.monotonic() + FILLED_S
    while is_warm and metric(standby.metrics(), "shale_standby_wal_cache_bytes") < SIZE_BYTES:
        assert time.monotonic() < deadline_s, "the standby does not follow the WAL"
        time.sleep(0.2)
    memory.append(metric(standby.metrics(), "process_resident_memory_bytes") / MB)
