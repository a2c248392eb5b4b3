"""Writes the databases of a fixture, with the code of any commit: run by ``tests.upgrade.make_fixture``.

    python scenario.py FOLDER

It uses what the first version had, and tries the rest: a feature that the commit lacks is left out.  ``rows.json`` has
the rows that each database must show, and how to open it.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import shale

KEY = bytes(range(32))
"""The key of the encrypted database; it protects nothing."""
CENTURY_S = 100 * 365 * 24 * 3600
COMPACTOR = (
    *("--set", "compactor_options.poll_interval=100ms", "--set", "compactor_options.commit_compacted_interval=100ms"),
    *("--set", "compactor_options.worker.compactions_poll_interval=100ms"),
)

Rows = dict[bytes, bytes]


class Scenario:
    """The databases of one fixture in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.described: dict[str, dict[str, Any]] = {}

    def url(self, name: str) -> str:
        return f"file://{self._folder}/{name}"

    def keep(self, name: str, rows: Rows, **opened: Any) -> None:
        """Note what a database must show."""
        shown = {b64encode(key).decode(): b64encode(value).decode() for key, value in sorted(rows.items())}
        self.described[name] = {"open": opened, "rows": shown}

    async def open(self, name: str, **settings: Any) -> Any:
        """Open a writer without background work, where the version has any."""
        quiet = {"compactor": False, "gc": False} if hasattr(shale, "DbOpenOptions") else {}
        return await shale.Db.open(self.url(name), **quiet, **settings)

    async def layers(self, name: str, count: int, **settings: Any) -> Rows:
        """Write L0s, tombstones and a tail that is only in the WAL; return the rows."""
        rows: Rows = {}
        db = await self.open(name, **settings)
        for layer in range(count):
            for number in range(8):
                key, value = b"key%02d" % ((layer * 5 + number) % 20), b"%s %d/%d" % (name.encode(), layer, number)
                await db.put(key, value)
                rows[key] = value
            await db.delete(b"key%02d" % layer)
            rows.pop(b"key%02d" % layer, None)
            await db.flush("memtable")
        await db.put(b"tail", b"only in the WAL")
        await db.delete(b"key19")
        await db.flush("wal")
        rows[b"tail"] = b"only in the WAL"
        rows.pop(b"key19", None)
        await db.close()
        return rows

    def compact(self, name: str, *options: str) -> None:
        """Run a compactor until it has committed a run."""
        log = self._folder / "compactor.log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "shale_compactor", "--url", self.url(name), *COMPACTOR, *options]
            command += ["--admin-port", "0"]
            daemon = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + 120
        while b"compaction.committed" not in log.read_bytes():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()[-1500:])
            time.sleep(0.1)
        daemon.terminate()
        daemon.wait(60)
        log.unlink()

    async def plain(self) -> None:
        """A run, L0s, a WAL tail, rows with a lifetime, and a checkpoint."""
        await self.layers("plain", 4)
        self.compact("plain")
        await self.layers("plain", 2)
        db = await self.open("plain")
        await db.put(b"lasting", b"a century", ttl=CENTURY_S)
        await db.put(b"expired", b"a moment", ttl=1)
        await db.flush("wal")
        await db.checkpoint(name="kept")
        await db.put(b"after", b"the checkpoint")
        await db.flush("wal")
        await db.close()
        self.keep("plain", {key: value for key, value in (await self.read("plain")).items() if key != b"expired"})

    async def clone(self) -> None:
        """A clone, and its parent, which keeps a checkpoint for it."""
        self.keep("parent", await self.layers("parent", 2))
        create = ("clone", "create", "--source", self.url("parent"), "-u", self.url("clone"))
        try:
            self.cli(*create, "--allow-wal-gap")
        except subprocess.CalledProcessError:  # the option is not known: early versions left the WAL out
            self.cli(*create)
        self.keep("clone", await self.read("clone"))

    async def read(self, name: str, **settings: Any) -> Rows:
        """Return the rows that this version shows."""
        db = await shale.DbReader.open(self.url(name), **settings)
        rows = {bytes(row.key): bytes(row.value) async for row in db.scan()}
        await db.close()
        return rows

    @staticmethod
    def cli(*arguments: str) -> None:
        """Run a command of this version."""
        subprocess.run([sys.executable, "-m", "shale_cli", *arguments], check=True, stdout=subprocess.DEVNULL)

    async def merges(self) -> None:
        """Merge operands in a run, in L0s and in the WAL."""
        for count in (4, 1):
            db = await self.open("merge", merge_operator="int_add")
            for _ in range(count):
                for key in (b"a", b"b"):
                    await db.merge(key, (1).to_bytes(8, "little"))
                await db.flush("memtable")
            await db.merge(b"a", (10).to_bytes(8, "little"))
            await db.flush("wal")
            await db.close()
            if count > 1:
                self.compact("merge", "--set", "compactor_options.worker.merge_operator=int_add")
        self.keep("merge", await self.read("merge", merge_operator="int_add"), merge_operator="int_add")

    async def segments(self) -> None:
        """Trees by the first three bytes of the key."""
        extractor = shale.FixedPrefix("first three", 3)
        rows = await self.layers("segments", 2, segment_extractor=extractor)
        self.keep("segments", rows, prefix_length=3)

    async def codecs(self) -> None:
        """A database for each compression."""
        for codec in ("snappy", "zlib", "lz4", "zstd"):
            rows = await self.layers(codec, 2, compression=codec)
            self.keep(codec, rows, compression=codec)

    async def encrypted(self) -> None:
        """Blocks in AES-GCM."""
        rows = await self.layers("encrypted", 2, block_transformer=shale.AesGcm({"k1": KEY}))
        self.keep("encrypted", rows, encrypted=True)

    async def parallel_wal(self) -> None:
        """WAL files that are written concurrently."""
        rows = await self.layers("parallel", 1, max_parallel_writes=4)
        self.keep("parallel", rows, max_parallel_writes=4)

    async def submitted(self) -> None:
        """A compaction that no worker has taken."""
        rows = await self.layers("submitted", 4)
        self.compact("submitted")
        rows |= await self.layers("submitted", 4)
        self.compact("submitted")
        self.cli("compaction", "submit", "--full", "-u", self.url("submitted"))
        self.keep("submitted", await self.read("submitted"))


def attempts(scenario: Scenario) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the parts, by the name of the feature."""
    parts = (scenario.plain, scenario.clone, scenario.merges, scenario.segments, scenario.codecs, scenario.encrypted,
             scenario.parallel_wal, scenario.submitted)  # fmt: skip
    return {part.__name__: part for part in parts}


async def main(folder: Path) -> None:
    scenario = Scenario(folder)
    left_out = {}
    for name, part in attempts(scenario).items():
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - what a commit lacks is left out, and told
            left_out[name] = f"{type(error).__name__}: {error}"[-600:]
    described = {"databases": scenario.described, "left_out": left_out}
    (folder / "rows.json").write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
    sys.stdout.flush()
    os._exit(0)  # early versions may abort at the exit of the interpreter
