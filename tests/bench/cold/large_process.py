"""One process of the large lines: it scans a database twice and prints rows per second and its memory.

Usage: ``python -m tests.bench.cold.large_process ENGINE FOLDER objects|arrow|batches``, or ``prepare FOLDER ROWS
VALUE_BYTES`` to fill the one of LMDB.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.bench.cold.work import COLD, ENGINES, WARM, resident_mb
from tests.bench.peers import Lmdb, Peer, Shale

SLATEDB_ROWS = 20_000


async def scan(engine: str, folder: Path, kind: str) -> dict[str, float]:
    """Return the rows per second of the first scan and of that after the database was opened again, and memory."""
    told: dict[str, float] = {}
    for phase in (COLD, WARM):
        peer = ENGINES[engine]()
        await peer.open(folder)
        seconds, rows = await _scan(peer, kind)
        await peer.close()
        told[phase] = rows / seconds
        if phase == COLD:
            told["resident_mb"] = resident_mb()
    return told


async def _scan(peer: Peer, kind: str) -> tuple[float, int]:
    if peer.name == "slatedb":
        return await peer.scan_some([b"0"], SLATEDB_ROWS), SLATEDB_ROWS
    if isinstance(peer, Shale) and kind != "objects":
        return await (peer.scan_to_arrow() if kind == "arrow" else peer.scan_to_arrow_batches())
    return await peer.scan()


async def prepare(folder: Path, rows: int, value_bytes: int) -> dict[str, float]:
    """Fill LMDB with the rows of a load."""
    from tests.bench.compaction.load import SOURCES, Load
    from tests.bench.rows import KEY_BYTES

    peer, load = Lmdb(), Load(rows, value_bytes)
    await peer.open(folder / "lmdb")
    for number in range(SOURCES):
        for part in load.source(number):
            keys, values = part.key_bytes.tobytes(), part.val_bytes.tobytes()
            with peer.db.begin(write=True) as txn:
                for row in range(len(part)):
                    value = values[row * value_bytes : (row + 1) * value_bytes]
                    txn.put(keys[row * KEY_BYTES : (row + 1) * KEY_BYTES], value)
    await peer.flush()
    await peer.close()
    return {}


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        work = prepare(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        work = scan(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    print(json.dumps(asyncio.run(work)))
