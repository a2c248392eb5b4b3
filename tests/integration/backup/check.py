"""Backs up and restores a large database on an S3 server, with SIGKILL at random moments: ``make backup-check``.

    python -m tests.integration.backup.check --size 1GiB [--kills 5] [--seed 1] [--folder /var/tmp]

The server is versitygw, on a temporary folder, which needs 2.5 times the size.  Before the restore, the database is
lost.  The exit code is 1 if a bound does not hold: an incremental backup that adds more than 1.1 times the new bytes to
the store, a process that takes more memory than ``MEMORY_BYTES_MAX``, or a row that differs.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import shale
from shale.core.settings_values import parse_size
from shale.store.options import StoreOptions
from tests.integration.store.servers import SECRET
from tests.integration.store.versitygw import find_versitygw, versitygw
from tests.paths import PYTHONPATH

VALUE_BYTES = 1000
ROW_BYTES = VALUE_BYTES + 16
BATCH = 1000
WAL_ROWS = 5000
"""Far below a memtable, so that no row is in an SST and in the WAL."""
FACTOR_MAX = 1.1
MEMORY_BYTES_MAX = 512 << 20
"""The limit of the pod of a backup in the chart."""
POLL_INTERVAL_S = 0.05
ACCESS = {"access_key_id": SECRET, "secret_access_key": SECRET, "region": "us-east-1"}


class Check:
    """One run: the database, its commands, and what is measured.

    Args:
        endpoint: of the S3 server.
        folder: where the server keeps its buckets.
        size: bytes of the rows of the first backup.
        kills: SIGKILLs of each command that copies.
        seed: of the moments.
    """

    def __init__(self, endpoint: str, folder: Path, size: int, kills: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._kills = kills
        self._data, self._backups = folder / "data", folder / "backups"
        self._rows = size // ROW_BYTES
        self._peak = 0  # bytes of memory of the largest command
        self._written = 0  # the sum of the checksums of all rows
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
        new = self._rows // 10
        self._write(0, self._rows)
        self._create(self._rows, self._kills)
        self._write(self._rows, self._rows + new)
        factor = self._create(new, 0)
        self._write(self._rows + new, self._rows + 2 * new - WAL_ROWS)
        self._write(self._rows + 2 * new - WAL_ROWS, self._rows + 2 * new, wal=True)
        killed = self._create(new, self._kills)
        source = asyncio.run(self._digest())
        shutil.rmtree(self._data / "orders")
        rows = self._rows + 2 * new
        self._command("restore", self._kills, self._data, rows * ROW_BYTES)
        restored = asyncio.run(self._digest())
        self._command("verify", 0, self._data, 0)
        return (
            self._holds(
                f"incremental backups added {factor:.3f} and {killed:.3f} x the new bytes", factor <= FACTOR_MAX
            )
            & self._holds("incremental backup with kills", killed <= FACTOR_MAX)
            & self._holds(f"{restored[0]:,} rows are those of the source", source == restored and source[0] == rows)
            & self._holds("rows are those that were written", restored[1] == self._written)
            & self._holds(
                f"the largest command took {self._peak / 1e6:,.0f} MB of memory", self._peak <= MEMORY_BYTES_MAX
            )
        )

    def _holds(self, what: str, is_held: bool) -> bool:
        print(f"{what}: {'yes' if is_held else 'NO'}", flush=True)
        return is_held

    def _write(self, start: int, stop: int, *, wal: bool = False) -> None:
        began = time.monotonic()
        asyncio.run(self._write_rows(start, stop, wal=wal))
        self._print("write", (stop - start) * ROW_BYTES, time.monotonic() - began)

    async def _write_rows(self, start: int, stop: int, *, wal: bool) -> None:
        """Write rows to SSTs; with ``wal`` they stay in the WAL if they are few."""
        options = {"compactor": False, "gc": False, "l0_max_ssts": 10_000, "l0_max_ssts_per_key": 10_000}
        db = await shale.Db.open(**self._database, **options, wal_enabled=wal)  # type: ignore[arg-type]
        random_bytes = random.Random(start).randbytes
        for first in range(start, stop, BATCH):
            numbers = range(first, min(first + BATCH, stop))
            keys = [b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64) for number in numbers]
            drawn = random_bytes(VALUE_BYTES * len(keys))
            values = [drawn[at : at + VALUE_BYTES] for at in range(0, len(drawn), VALUE_BYTES)]
            async with db.batch() as batch:
                batch.put_many(keys, values)
            self._written += sum(map(row_checksum, keys, values))
        await db.close(flush="wal" if wal else "memtable")

    def _create(self, new_rows: int, kills: int) -> float:
        """Make a backup; return the bytes that the place has grown by, divided by those of the new rows."""
        before, new = folder_bytes(self._backups), new_rows * ROW_BYTES
        made = self._command("create", kills, self._backups, new)
        grown = folder_bytes(self._backups) - before
        print(
            f"backup: {made['copied_objects']} objects, {made['copied_bytes']:,} bytes; "
            f"{grown / new:.3f} x the new bytes",
            flush=True,
        )
        return grown / new

    def _command(self, verb: str, kills: int, folder: Path, size: int) -> dict[str, int]:
        """Run a command, and run it again after each kill.

        Args:
            verb: of ``shale backup``.
            kills: how often it is killed.
            folder: where it writes.
            size: bytes that it writes there: it is killed when a random part of them is there.
        """
        command = [sys.executable, "-m", "shale_cli", "backup", verb]
        command += ["--backups", "s3://backups/orders", "-u", "s3://data/orders"]
        start, began = folder_bytes(folder), time.monotonic()
        parts = sorted(self._rng.random() for _ in range(kills))
        killed = [part for part in parts if self._kill(command, folder, start + int(part * size))]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=self._environment)
        self._watch(child)
        output, _ = child.communicate()
        assert child.returncode == 0, (verb, child.returncode)
        found: dict[str, int] = json.loads(output)
        at = ", ".join(f"{part:.0%}" for part in killed) or "never"
        self._print(f"{verb}, killed at {at}", found.get("read_bytes", size), time.monotonic() - began)
        return found

    def _kill(self, command: list[str], folder: Path, size: int) -> bool:
        """Run a command until a folder has so many bytes, and kill it; return whether it was still running."""
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self._environment)
        self._watch(child, lambda: folder_bytes(folder) >= size)
        child.send_signal(signal.SIGKILL)
        return child.wait() == -signal.SIGKILL

    def _watch(self, child: "subprocess.Popen[bytes]", is_enough: Callable[[], bool] = lambda: False) -> None:
        """Note the memory of a process until it ends, or until ``is_enough``."""
        while child.poll() is None and not is_enough():
            with suppress(OSError):
                status = Path(f"/proc/{child.pid}/status").read_text()
                self._peak = max(
                    self._peak, *(int(found) << 10 for found in re.findall(r"VmHWM:\s+(\d+) kB", status)), 0
                )
            with suppress(subprocess.TimeoutExpired):
                child.wait(POLL_INTERVAL_S)

    async def _digest(self) -> tuple[int, int, str]:
        """Return the number of rows, the sum of their checksums, and a digest of all keys and values, in order."""
        began = time.monotonic()
        all_keys, all_values, count, total = hashlib.sha256(), hashlib.sha256(), 0, 0
        async with shale.DbReader.open(**self._database) as reader:  # type: ignore[arg-type]
            async for batch in reader.scan().arrow_batches():
                keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
                all_keys.update(b"".join(keys))
                all_values.update(b"".join(values))
                total += sum(map(row_checksum, keys, values))
                count += len(keys)
        self._print("read", count * ROW_BYTES, time.monotonic() - began)
        return count, total, all_keys.hexdigest() + all_values.hexdigest()

    def _print(self, what: str, size: int, seconds: float) -> None:
        print(f"{what}: {size / 1e6:,.0f} MB in {seconds:.1f} s, {size / 1e6 / seconds:,.1f} MB/s", flush=True)


def row_checksum(key: bytes, value: bytes) -> int:
    """Return the checksum of a row."""
    return crc32(value, crc32(key))


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all objects in a bucket; without parts of multipart uploads that were not completed."""

    def sizes(path: str) -> Iterator[int]:
        with suppress(FileNotFoundError), os.scandir(path) as found:
            for each in found:
                if each.is_dir():
                    yield from sizes(each.path) if each.name != ".sgwtmp" else ()
                else:
                    with suppress(FileNotFoundError):
                        yield each.stat().st_size

    return sum(sizes(str(folder)))


def main() -> int:
    """Run the check and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.backup.check", description=__doc__)
    parser.add_argument("--size", default="1GiB", help="bytes of rows")
    parser.add_argument("--kills", type=int, default=5, help="SIGKILLs of each command that copies")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--folder", type=Path, help="folder for the buckets; default: that of temporary files")
    options = parser.parse_args()
    size = parse_size(options.size, name="--size")
    if find_versitygw() is None:
        parser.error("versitygw is not here: make versitygw")
    with tempfile.TemporaryDirectory(prefix="shale-backup-check-", dir=options.folder) as name:
        (Path(name) / "backups").mkdir()
        with versitygw("data", Path(name)) as endpoint:
            holds = Check(endpoint, Path(name), size, options.kills, options.seed).run()
    print("every bound holds" if holds else "a bound does NOT hold", flush=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
