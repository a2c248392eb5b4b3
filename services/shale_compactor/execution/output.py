"""Writing one key range of a compaction as a sequence of SSTs (docs/protocol.md 6.11, steps 5 and 6).

Each SST is streamed to the store while it is built.  While one is being closed the next one fills; a third has to
wait, which bounds memory.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from shale.env import Env
from shale.format.names import sst_key
from shale.kernels.merge_steps import Step
from shale.kernels.rows import Rows
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.port import Buffer, ObjectStore
from shale.types import Sst, Ulid

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream

    from shale_compactor.execution.block_feed import BlockFeed

_PARTS_IN_FLIGHT = 1
PARTS_MAX = _PARTS_IN_FLIGHT + 2
"""Parts of one range in memory: the one that fills, those that wait, and the one on its way into the store."""


class RunWriter:
    """Takes merged rows in chunks and makes SSTs of bounded size, none of which splits a key."""

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        tasks: TaskGroup,
        *,
        options: SstOptions,
        max_sst_size_bytes: int,
        not_before_ms: int,
        on_sst: Callable[[Sst], None],
    ) -> None:
        """Make no request yet.

        Args:
            tasks: owns the uploads; the first error there ends everything.
            not_before_ms: outputs get this time or a later one, so that no collector takes them for old.
            on_sst: told about every finished SST, in key order.
        """
        self._store = store
        self._root = root
        self._env = env
        self._tasks = tasks
        self._options = options
        self._max_sst_size_bytes = max_sst_size_bytes
        self._not_before_ms = not_before_ms
        self._on_sst = on_sst
        self._current: _Upload | None = None
        self._closing: _Upload | None = None

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of blocks that no finished SST holds yet."""
        return sum(upload.builder.data_len for upload in (self._current, self._closing) if upload is not None)

    async def add(self, rows: Rows) -> None:
        """Append rows that follow all rows so far."""
        while len(rows):
            if self._current is None:
                self._current = self._open()
            upload = self._current
            add = partial(upload.builder.add, rows, until_bytes=self._max_sst_size_bytes)
            taken = await self._env.cpu.run(add)
            await self._send(upload, upload.builder.take_parts())
            if taken < len(rows):
                await self._roll_over()
            rows = rows.slice(taken, len(rows))

    async def merge(self, feed: "BlockFeed", on_bytes: Callable[[int], None]) -> None:
        """Append all rows of a merge of stored blocks; ``on_bytes`` hears of the keys and values that came."""
        await feed.begin()
        step = Step.FULL
        while step is not Step.DONE:
            if self._current is None:
                self._current = self._open()
                feed.merge.begin_file()
            upload = self._current
            before = upload.builder.raw_bytes
            merge = partial(upload.builder.merge, feed.merge, until_bytes=self._max_sst_size_bytes)
            step = await feed.advance(merge)
            if upload.builder.raw_bytes > before:
                on_bytes(upload.builder.raw_bytes - before)
            if step is Step.STARVED:  # parts wait until they are whole: each one costs a write
                await feed.feed()
                continue
            await self._send(upload, upload.builder.take_parts())
            if step is Step.FULL:
                await self._roll_over()

    async def close(self) -> None:
        """Finish the last SST and wait until every SST is in the store."""
        await self._roll_over()
        await self._await_closing()

    def abandon(self) -> None:
        """Let go of what is unfinished; ``tasks`` has ended, so no upload takes this for the end of its SST."""
        for upload in (self._current, self._closing):
            if upload is not None:
                upload.close()

    def _open(self) -> "_Upload":
        sst_id = self._env.ids.ulid(at_least_ms=self._not_before_ms)
        return _Upload(sst_id, SstBuilder(self._options))

    async def _send(self, upload: "_Upload", parts: Sequence[Buffer]) -> None:
        for part in parts:
            if not upload.is_started:  # not before there is something: a merge may keep nothing
                upload.is_started = True
                self._tasks.start_soon(self._upload, upload, name=f"upload.{upload.id}")
            await upload.send.send(part)

    async def _upload(self, upload: "_Upload") -> None:
        await upload.run(self._store, sst_key(self._root, upload.id))
        # In key order: the one after this is not closed before this one is done.
        assert upload.sst is not None, "the stream ends after the SST is finished"
        self._on_sst(upload.sst)
        upload.done.set()

    async def _roll_over(self) -> None:
        """Let the current SST close in the background, once the one before it is in."""
        await self._await_closing()
        upload, self._current = self._current, None
        if upload is None:
            return
        if upload.builder.is_empty:
            upload.close()
            return
        self._closing = upload
        parts, info = await self._env.cpu.run(upload.builder.finish)
        upload.sst = Sst(id=upload.id, info=info)
        with upload.send:
            await self._send(upload, parts)

    async def _await_closing(self) -> None:
        upload, self._closing = self._closing, None
        if upload is not None:
            await upload.done.wait()


class _Upload:
    """One SST on its way into the store."""

    def __init__(self, sst_id: Ulid, builder: SstBuilder) -> None:
        self.id = sst_id
        self.builder = builder
        self.is_started = False
        self.sst: Sst | None = None
        self.done = anyio.Event()
        self.send: MemoryObjectSendStream[Buffer]
        self.send, self._receive = anyio.create_memory_object_stream[Buffer](_PARTS_IN_FLIGHT)

    async def run(self, store: ObjectStore, key: str) -> None:
        """Stream what is sent until the sender is closed."""
        with self._receive:
            await store.put_stream(key, self._receive)

    def close(self) -> None:
        """Close both ends."""
        self.send.close()
        self._receive.close()
