"""A writer of the slatedb package, which takes over from ours: ``python -m tests.soak.clients.wheel``.

It writes until its time is up, or until a writer of ours fences it.  With ``--compact`` it runs SlateDB's compactor,
too, which fences our coordinator.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from slatedb import uniffi as slate

from tests.interop.compaction.harness import RUST_COMPACTS
from tests.interop.slatedb_databases import EVERYTHING, Concatenate
from tests.soak.clients.session import ClientSession, Result, Shared
from tests.soak.history.operation import Function
from tests.soak.history.values import elements_in, joined, name_in, padded
from tests.soak.stack.daemons import MIN_AGE_S

MIN_AGE_MS = int(MIN_AGE_S * 1000)
LIMIT_S, OPEN_S = 15.0, 60.0
WEIGHTS = {"once": 24, "register": 18, "read": 16, "batch": 8, "scan": 8, "lists": 14, "merge": 8}


def open_store(url: str) -> Any:
    """Open the bucket of a URL; the environment says where it is."""
    return slate.ObjectStore.resolve(f"s3://{urlsplit(url).netloc}")


def root_of(url: str) -> str:
    """Return the path of the database in its bucket."""
    return urlsplit(url).path.strip("/")


class WheelWriterSession(ClientSession):
    """Writes and reads through SlateDB's ``Db``; every answered write is durable."""

    def __init__(self, shared: Shared, name: str, db: Any) -> None:
        super().__init__(shared, name, "wheel")
        self._db = db
        durable = slate.DurabilityLevel.REMOTE
        self._durable = slate.ReadOptions(durability_filter=durable, dirty=False, cache_blocks=True)
        self._scan_durable = slate.ScanOptions(
            durability_filter=durable, dirty=False, read_ahead_bytes=1 << 20, cache_blocks=False, max_fetch_tasks=1
        )

    async def attempt(self, function: Function, key: str, value: Any, work: Any) -> bool:
        """Await one operation and record it; return whether it succeeded."""
        start = time.monotonic()
        try:
            found = await asyncio.wait_for(work, LIMIT_S)
            result = Result("ok", found, self.name)
        except slate.Error.Transaction:
            result = Result("fail", None, self.name)
        except (slate.Error, TimeoutError) as error:
            print(f"{self.name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            result = Result("unknown", None, self.name)
        self.note(function, key, value, result, start)
        return result.outcome == "ok"

    async def step(self) -> bool:
        """Do one operation; return whether this is still the writer."""
        chosen = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        name = self.next_name()
        if chosen == "read":
            key = self.register()
            return await self.attempt("read", key, None, self._row(key))
        if chosen == "batch":
            group = self.group()
            rows = [(key.encode(), padded(name, 60)) for key in self.members(group)]
            return await self.attempt("batch", group, name, self._write(rows))
        if chosen == "scan":
            group = self.group()
            return await self.attempt("scan", group, None, self._scan(group))
        if chosen == "lists":
            return await self._append(name)
        if chosen == "merge":
            return await self._merge(name)
        key = f"once/{name}" if chosen == "once" else self.register()
        size = self.rng.choice((50, 400, 3000))
        return await self.attempt("write", key, name, self._write([(key.encode(), padded(name, size))]))

    async def _write(self, rows: list[tuple[bytes, bytes]]) -> None:
        batch = slate.WriteBatch()
        for key, value in rows:
            batch.put(key, value)
        await (await self._db.write(batch)).await_durable()

    async def _row(self, key: str) -> str | None:
        value = await self._db.get_with_options(key.encode(), self._durable)
        return name_in(None if value is None else bytes(value))

    async def _scan(self, group: str) -> dict[str, str | None]:
        iterator = await self._db.scan_prefix_with_options(group.encode(), EVERYTHING, self._scan_durable)
        found = {}
        while (row := await iterator.next()) is not None:
            found[bytes(row.key).decode()] = name_in(bytes(row.value))
        return found

    async def _append(self, element: str) -> bool:
        keys = self.list_keys()
        group = keys[0].rpartition("/")[0] + "/"
        steps: list[Any] = []

        async def work() -> None:
            transaction = await self._db.begin(slate.IsolationLevel.SERIALIZABLE_SNAPSHOT)
            lists = {}
            for key in keys:
                value = await transaction.get(key.encode())
                lists[key] = elements_in(None if value is None else bytes(value))
            changed = keys[:1]
            steps[:] = [["r", key, lists[key]] for key in keys] + [["append", key, element] for key in changed]
            for key in changed:
                if self.rng.random() < 0.5:
                    await transaction.merge(key.encode(), joined([element]))
                else:
                    await transaction.put(key.encode(), joined([*lists[key], element]))
            handle = await transaction.commit()
            if handle is not None:
                await handle.await_durable()

        return await self.attempt("txn", group, steps, work())

    async def _merge(self, element: str) -> bool:
        """Append to lists without reading them."""
        keys = self.list_keys()
        batch = slate.WriteBatch()
        for key in keys:
            batch.merge(key.encode(), joined([element]))

        async def work() -> None:
            await (await self._db.write(batch)).await_durable()

        steps = [["append", key, element] for key in keys]
        return await self.attempt("txn", keys[0].rpartition("/")[0] + "/", steps, work())


async def write(arguments: argparse.Namespace, shared: Shared) -> None:
    """Open the database, which fences the writer before, and write for a while."""
    settings = slate.Settings.default()
    chosen = {
        "compactor_options": RUST_COMPACTS if arguments.compact else None,
        "garbage_collector_options": None,
        "flush_interval": "50ms",
        "l0_sst_size_bytes": 256 << 10,
        "manifest_poll_interval": "500ms",
    }
    for key, value in chosen.items():
        settings.set(key, json.dumps(value))
    builder = slate.DbBuilder(root_of(shared.url), open_store(shared.url))
    builder.with_settings(settings)
    builder.with_merge_operator(Concatenate())
    try:
        db = await asyncio.wait_for(builder.build(), OPEN_S)
    except (slate.Error, TimeoutError) as error:
        print(f"{arguments.name}: not opened: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return
    session = WheelWriterSession(shared, arguments.name, db)
    end = time.monotonic() + arguments.seconds
    failures = 0
    while time.monotonic() < end and failures < 3:
        failures = 0 if await session.step() else failures + 1
        await asyncio.sleep(shared.pace_s)
    with contextlib.suppress(slate.Error, TimeoutError):
        await asyncio.wait_for(db.shutdown(), 20)


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(prog="tests.soak.clients.wheel")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--compact", action="store_true")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    shared = Shared.of(config, arguments.name)
    asyncio.run(write(arguments, shared))
    sys.exit(0)


if __name__ == "__main__":
    main()
