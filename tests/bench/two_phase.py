"""Durable puts with two-phase creates beside those with conditional writes, on the same store.

Both databases are open at once and take turns, because the disk and the server drift.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from time import perf_counter

import shale
from shale.store.options import StoreOptions
from shale.store.transactional.connect import open_transactional_store
from shale.types import AckAfter, CasMode
from tests.bench.line import BenchLine
from tests.bench.peers import key_of
from tests.integration.store.database_servers import postgresql
from tests.integration.store.servers import s3_server

PUTS = 200
WARM_UP = 20
VALUE = b"v" * 100


@contextmanager
def places() -> Iterator[dict[str, tuple[str, StoreOptions]]]:
    """Yield the stores: a directory, and an S3 server on this machine."""
    with tempfile.TemporaryDirectory() as folder, s3_server("bench") as endpoint:
        config = {"endpoint": endpoint, "access_key_id": "t", "secret_access_key": "t", "region": "us-east-1"}
        yield {
            "directory": (f"file://{folder}", StoreOptions()),
            "s3 server": ("s3://bench", StoreOptions(config=config)),
        }


async def put_times(url: str, records_url: str, options: StoreOptions, name: str) -> tuple[list[float], ...]:
    """Return seconds of durable puts: native, two-phase, and two-phase acknowledged by the record."""
    records = open_transactional_store(records_url)
    await records.create_schema()
    await records.aclose()
    two_phase = replace(options, cas=CasMode.TWO_PHASE, transactional_url=records_url)
    early = replace(two_phase, ack_after=AckAfter.RECORD)
    times: tuple[list[float], ...] = ([], [], [])
    async with (
        shale.Db.open(f"{url}/{name}-native", flush_interval=0, store_options=options) as native,
        shale.Db.open(f"{url}/{name}-two-phase", flush_interval=0, store_options=two_phase) as ours,
        shale.Db.open(f"{url}/{name}-early", flush_interval=0, store_options=early) as fast,
    ):
        for number in range(PUTS):
            for db, seconds in zip((native, ours, fast), times, strict=True):
                start = perf_counter()
                await (await db.put(key_of(number), VALUE)).durable()
                seconds.append(perf_counter() - start)
            await asyncio.sleep(0.005)  # the copies of the third are not the others' time
    return tuple(seconds[WARM_UP:] for seconds in times)


def two_phase_lines() -> list[BenchLine]:
    """Milliseconds at the median; the reference is a conditional put."""
    lines: list[BenchLine] = []
    with ExitStack() as stack:
        stores = stack.enter_context(places())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {
            "sqlite": f"sqlite://{folder}/records.db",
            "postgresql": stack.enter_context(postgresql()),
        }
        for place, (url, options) in stores.items():
            for server, records_url in servers.items():
                measured = asyncio.run(put_times(url, records_url, options, f"{place[0]}-{server}"))
                native, ours, early = (median(seconds) * 1e3 for seconds in measured)
                for mode, value in (("copy", ours), ("record", early)):
                    lines.append(
                        BenchLine(
                            name=f"durable put, {place}, {server}, after {mode} | native",
                            ours=value,
                            reference=native,
                            unit="ms",
                            target="written down",
                        )
                    )
    return lines
