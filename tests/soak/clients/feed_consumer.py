"""Follows the change feed and records every row; after a restart it continues after its last whole line."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shale.engine.location import DatabaseLocation
from shale.engine.wal.feed.feed import WalFeed
from shale.engine.wal.feed.offset import Edge, FeedOffset
from shale.engine.wal.feed.reading import read_part
from shale.engine.wal.feed.retention import Retention
from shale.env import Env
from shale.errors import FeedGap, ShaleError
from shale.kernels.rows import entries_from_rows
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.telemetry.metrics import Metrics
from tests.soak.checker.change_feed import SUFFIX
from tests.soak.clients.session import Shared
from tests.soak.history.values import name_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLL_S, FILES_MAX = 0.5, 50
LIFETIME_MS = 24 * 3600 * 1000
REGISTERS = ("register/", "once/", "lock/")


class Consumer:
    """One consumer with a name, under which the gc keeps what it has not read."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._file = shared.folder / f"consumer{SUFFIX}"
        self._env = Env.system()

    async def follow(self) -> None:
        """Read until the process is told to stop and the end of the feed is reached."""
        offset = last_offset(self._file)
        with self._file.open("a") as out:
            while True:
                is_last = self._shared.stop.is_set()
                try:
                    async with asyncio.timeout(60), self._connected() as (feed, wal, retention):
                        if offset is None:
                            kept_after = await retention.hold()
                            offset = await feed.begin(Edge.EARLIEST, kept_after=kept_after)
                        offset, is_at_end = await self._read(feed, wal, retention, offset, out)
                except FeedGap as error:
                    out.write(json.dumps({"error": str(error), "rows": []}) + "\n")
                    raise
                except (ShaleError, TimeoutError) as error:
                    print(f"feed: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    is_at_end = False
                if is_last and is_at_end:
                    return
                if is_at_end or not is_last:
                    await asyncio.sleep(POLL_S)

    async def _read(
        self, feed: WalFeed, wal: WalStore, retention: Retention, offset: FeedOffset, out: Any
    ) -> tuple[FeedOffset, bool]:
        """Read one batch; return the offset after it, and whether it was the last one."""
        end = await feed.end(offset, max_files=FILES_MAX)
        if end == offset:
            return offset, True
        rows: list[list[Any]] = []
        for part in await feed.plan(offset, end, parts_max=1):
            async for _, found in read_part(wal, part, self._env):
                for entry in entries_from_rows(found):
                    key = bytes(entry.key).decode()
                    value = None if entry.is_tombstone else bytes(entry.value)
                    rows.append([int(entry.seq), key, name_in(value) if key.startswith(REGISTERS) else ""])
        out.write(json.dumps({"offset": end.to_json(), "rows": rows}) + "\n")
        out.flush()
        await retention.move(end)
        return end, False

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[tuple[WalFeed, WalStore, Retention]]":
        url = urlsplit(self._shared.url)
        where = DatabaseLocation(f"{url.scheme}://{url.netloc}", url.path.strip("/"))
        stores = where.connect(self._env, Metrics(), component="pipeline", is_bounded=True)
        try:
            wal = WalStore(stores.wal or stores.main, where.root)
            manifests = ManifestStore(stores.main, where.root, self._env)
            retention = Retention(manifests, self._env, name="soak", lifetime_ms=LIFETIME_MS)
            yield WalFeed(wal, manifests, self._env), wal, retention
        finally:
            await stores.aclose()


def last_offset(file: Path) -> FeedOffset | None:
    """Return the offset of the last whole line."""
    if not file.exists():
        return None
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    file.write_text(whole)
    for line in reversed(whole.splitlines()):
        if (offset := json.loads(line).get("offset")) is not None:
            return FeedOffset.from_json(offset)
    return None
