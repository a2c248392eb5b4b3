"""Backs up and restores a large database on an S3 server, with SIGKILL at random moments: ``make backup-check``.

    python -m tests.integration.backup.check --size 1GiB [--kills 5] [--seed 1]

The server is versitygw, on a temporary folder.  Printed are times, rates and bytes.  The exit code is 1 if a bound does
not hold: an incremental backup that writes more than 1.1 times the new bytes, or a restored row that differs.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import shale
from shale.core.settings_values import parse_size
from shale.store.options import StoreOptions
from tests.integration.store.servers import SECRET
from tests.integration.store.versitygw import find_versitygw, versitygw
from tests.paths import PYTHONPATH

VALUE_BYTES = 1000
ROW_BYTES = VALUE_BYTES + 16
BATCH = 1000
FACTOR_MAX = 1.1
ACCESS = {"access_key_id": SECRET, "secret_access_key": SECRET, "region": "us-east-1"}


class Check:
    """One run: the database, its commands, and what is measured."""

    def __init__(self, endpoint: str, size: int, kills: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._kills = kills
        self._rows = size // ROW_BYTES
        options = StoreOptions(config={"endpoint": endpoint, **ACCESS})
        self._database = {"where": "orders", "store": "s3://data", "store_options": options}
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "PYTHONPATH": PYTHONPATH,
            **{f"SHALE_STORE__{name.upper()}": text for name, text in {"endpoint": endpoint, **ACCESS}.items()},
        }

    def run(self) -> bool:
        """Run all steps; return whether every bound holds."""
        asyncio.run(self._write(0, self._rows))
        first = self._backup(self._kills)
        new = self._rows // 10
        asyncio.run(self._write(self._rows, self._rows + new))
        incremental = self._backup(0)
        factor = incremental["copied_bytes"] / (new * ROW_BYTES)
        print(f"incremental: {factor:.3f} x the new bytes; at most {FACTOR_MAX}", flush=True)
        asyncio.run(self._write(self._rows + new, self._rows + 2 * new))
        killed = self._backup(self._kills)
        print(f"incremental with kills: {killed['copied_bytes'] / (new * ROW_BYTES):.3f} x the new bytes", flush=True)
        self._command("restore", "backup", "restore", self._kills, url="s3://data/restored")
        self._command("verify", "backup", "verify", 0, url="s3://data/orders")
        source, restored = asyncio.run(self._digest("orders")), asyncio.run(self._digest("restored"))
        print(f"rows: {source[0]:,} and {restored[0]:,}, {'equal' if source == restored else 'DIFFERENT'}", flush=True)
        return factor <= FACTOR_MAX and source == restored and source[0] == self._rows + 2 * new and bool(first)

    async def _write(self, start: int, stop: int) -> None:
        began = time.monotonic()
        options = {"compactor": False, "gc": False, "l0_max_ssts": 10_000, "l0_max_ssts_per_key": 10_000}
        db = await shale.Db.open(**self._database, **options)  # type: ignore[arg-type]
        values = random.Random(start)
        for first in range(start, stop, BATCH):
            async with db.batch() as batch:
                for number in range(first, min(first + BATCH, stop)):
                    batch.put(b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64), values.randbytes(VALUE_BYTES))
        await db.close(flush="memtable")
        size = (stop - start) * ROW_BYTES
        self._print("write", size, time.monotonic() - began)

    def _backup(self, kills: int) -> dict[str, int]:
        made = self._command("backup", "backup", "create", kills, url="s3://data/orders")
        print(f"backup: {made['copied_objects']} objects, {made['copied_bytes']:,} bytes copied", flush=True)
        return made

    def _command(self, name: str, noun: str, verb: str, kills: int, *, url: str) -> dict[str, int]:
        """Run a command; kill it at random moments, and run it again until it ends."""
        command = [sys.executable, "-m", "shale_cli", noun, verb, "--backups", "s3://backups/orders", "-u", url]
        killed, began = 0, time.monotonic()
        while True:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, env=self._environment)
            if killed < kills:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(self._rng.uniform(1.0, 6.0))
                if child.poll() is None:
                    child.send_signal(signal.SIGKILL)
                    child.wait()
                    killed += 1
                    continue
            output, _ = child.communicate()
            assert child.returncode == 0, (name, child.returncode)
            found: dict[str, int] = json.loads(output)
            size = found.get("read_bytes", found.get("copied_bytes", 0))
            self._print(f"{name}, killed {killed} times", size, time.monotonic() - began)
            return found

    async def _digest(self, path: str) -> tuple[int, str]:
        """Return the number of rows and a checksum over all of them, in order."""
        digest, count = hashlib.sha256(), 0
        location = {**self._database, "where": path}
        async with shale.DbReader.open(**location) as reader:  # type: ignore[arg-type]
            async for rows in reader.scan().batches(BATCH):
                for row in rows:
                    digest.update(b"%d:%d:%d:" % (len(row.key), len(row.value), row.seq) + row.key + row.value)
                    count += 1
        return count, digest.hexdigest()

    def _print(self, what: str, size: int, seconds: float) -> None:
        print(f"{what}: {size / 1e6:,.0f} MB in {seconds:.1f} s, {size / 1e6 / seconds:,.1f} MB/s", flush=True)


def main() -> int:
    """Run the check and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.backup.check", description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of rows")
    parser.add_argument("--kills", type=int, default=5, help="SIGKILLs of each command that copies")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    size = parse_size(options.size, name="--size")
    if find_versitygw() is None:
        parser.error("versitygw is not here: make versitygw")
    with tempfile.TemporaryDirectory(prefix="shale-backup-check-") as name, versitygw("data", Path(name)) as endpoint:
        (Path(name) / "backups").mkdir()
        holds = Check(endpoint, size, options.kills, options.seed).run()
    print("every bound holds" if holds else "a bound does NOT hold", flush=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
