"""What the suite ``cold`` measures: kinds of work, how often a process does each, and the sizes of the databases."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import PEERS, Peer

KEYS = 100_000
L0_COUNT = 4
BATCH = 1_000
COLD, WARM, HOT = "cold", "warm", "hot"
DISK = "disk cache: 1,000 gets"
ENGINES: Mapping[str, type[Peer]] = {engine.name: engine for engine in PEERS}


@dataclass(frozen=True, slots=True)
class Work:
    """Work to measure: its target in words, how often a process does it, and the engines that cannot."""

    target: str
    phases: tuple[str, ...] = (COLD, WARM)
    without: tuple[str, ...] = ()


READS = (COLD, WARM, HOT)
LINES: Mapping[str, Work] = {
    "interpreter, import and open": Work("<= 120 ms", (COLD,)),
    "open an existing database": Work("as RocksDB"),
    "replay of 100,000 rows": Work(">= 2x wheel", without=("lmdb",)),
    "1,000 gets": Work("blocks not in memory: >= 20x wheel, >= 0.7x RocksDB; hot: >= 0.7x LMDB", READS),
    DISK: Work("as 1,000 gets", READS, without=("slatedb", "rocksdict", "lmdb")),
    "1,000 gets of absent keys": Work(">= 4x RocksDB, >= 0.7x LMDB", READS),
    "1,000 keys at once": Work(">= 1.5x LMDB", READS),
    "20 scans of 1,000 rows": Work(">= 0.8x RocksDB, >= 0.6x LMDB", READS),
    "20 scans of 100 rows": Work(">= 0.8x RocksDB", READS),
    "20 scans of 10 rows": Work(">= 0.5x RocksDB, >= 0.2x LMDB", READS),
    "20 scans of 1 row": Work(">= 0.5x RocksDB", READS),
    "full scan": Work(">= 1x RocksDB, >= 0.8x LMDB"),
    "full scan to Arrow": Work(">= 3x RocksDB, >= 1.3x LMDB", without=("slatedb",)),
    "memory after a full scan": Work("<= 80 MB", (COLD,)),
    "20,000 puts in batches of 1,000": Work("for comparison"),
    "WAL flush of 20,000 rows": Work("3 ms", without=("slatedb", "rocksdict", "lmdb")),
    "flush of 100,000 rows to L0": Work(">= 1x RocksDB", without=("lmdb",)),
}
"""Lines by name.  SlateDB's slower puts leave few rows waiting for a WAL flush, and its full scans take long.  RocksDB
writes its log at once; LMDB has none, and its rows are in their tree before a flush."""


def resident_mb() -> float:
    """Return the most memory that this process has had; ``getrusage`` would count that of its parent, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1000


def keys_of() -> list[bytes]:
    """Return the keys of the database, in the order in which they were written."""
    return random_keys(random.Random(15), KEYS)


def random_keys(rng: random.Random, count: int) -> list[bytes]:
    """Return uniformly random keys of 16 bytes."""
    return [b"%016x" % rng.getrandbits(64) for _ in range(count)]
