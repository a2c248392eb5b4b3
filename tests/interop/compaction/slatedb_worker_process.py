"""A process that runs SlateDB's worker, so that a test can kill it.

    python -m tests.interop.compaction.slatedb_worker_process FOLDER

SlateDB 0.17 has no worker apart from a coordinator in its Python package.  Its workers do not look at epochs, though,
and this coordinator sleeps for an hour after its start: it never learns that ours has taken over, and its worker
serves any scheduler.

The process writes the rows of ``VERSIONED`` in four L0s, holds a snapshot that keeps all versions of the last three,
says ``ready``, and from then on is a worker that takes its time over merge operands.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from slatedb import uniffi as slate

from tests.interop.compaction.harness import CALM, ROOT
from tests.interop.slatedb_databases import Concatenate, Shape, flush, open_folder, opened

KEYS = 60
VERSIONS = 40
"""Of each key, in each of the last three L0s."""
SECONDS_PER_MERGE = 0.04
MAX_SST_SIZE = 8 * 1024
SLEEPS = {
    **CALM,
    "poll_interval": "3600s",
    "commit_compacted_interval": "3600s",
    "worker": {**CALM["worker"], "max_sst_size": MAX_SST_SIZE, "max_subcompactions": 1},
}


class SlowConcatenate(Concatenate):
    """A merge operator as slow as a merge of real size."""

    is_slow = False
    calls = 0

    def merge(self, key: bytes, existing_value: bytes | None, operand: bytes) -> bytes:
        self.calls += 1
        if self.is_slow:
            time.sleep(SECONDS_PER_MERGE)
        return super().merge(key, existing_value, operand)


def versioned() -> dict[bytes, bytes]:
    """Return the rows that a reader must find."""
    newest = {key_of(number): value_of(3, number, VERSIONS - 1) for number in range(KEYS)}
    return newest | {operand_key(number): b"ab" for number in range(KEYS)}


def key_of(number: int) -> bytes:
    """Return a key with many versions."""
    return b"%03d/versions" % number


def operand_key(number: int) -> bytes:
    """Return a key with two merge operands, directly before the key with the same number."""
    return b"%03d/operands" % number


def value_of(l0: int, number: int, version: int) -> bytes:
    """Return a value of a hundred bytes that no other writer writes."""
    return b"%d.%d.%d " % (l0, number, version) * 10


async def write(db: Any) -> Any:
    """Write all L0s; return the snapshot, without which compactions would drop older versions."""
    for operand in (b"a", b"b"):
        batch = slate.WriteBatch()
        for number in range(KEYS):
            batch.merge(operand_key(number), operand)
        await db.write(batch)
        if operand == b"a":
            await flush(db)
    snapshot = await db.snapshot()
    for l0 in range(1, 4):
        for version in range(VERSIONS):
            batch = slate.WriteBatch()
            for number in range(KEYS):
                batch.put(key_of(number), value_of(l0, number, version))
            await db.write(batch)
        await flush(db)
    return snapshot


async def main(folder: str) -> None:
    """Write, and run the worker until the process is killed."""
    operator = SlowConcatenate()
    shape = Shape({"compactor_options": SLEEPS, "garbage_collector_options": None}, merge_operator=operator)
    async with opened(open_folder(Path(folder)), ROOT, shape) as db:
        snapshot = await write(db)
        operator.is_slow = True
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        del snapshot


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
