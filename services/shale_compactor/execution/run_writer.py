"""Write one key range of a compaction as a sequence of SSTs (docs/reference/protocol.md 6.11, steps 5 and 6).

Each SST is streamed to the store while it is built.  While one is being closed, the next one is filled; a third one
waits, which bounds memory.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.format.blocks.output import MERGED_PART_BYTES
from shale.format.names import sst_key
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import Rows
from shale.sst.builder import SstBuilder
from shale.sst.options import SstOptions
from shale.store.port import SstUploads
from shale.types import Sst, Ulid

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream

    from shale_compactor.execution.block_feed import BlockFeed

_PARTS_IN_FLIGHT = 1
PARTS_MAX = _PARTS_IN_FLIGHT + 2
"""Parts of one range in memory: the one being filled, the queued ones, and the one being uploaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options of the output SSTs of one key range.

    Args:
        sst: options of each SST.
        max_sst_size_bytes: an SST is closed at the next key once its blocks are larger.
        not_before_ms: minimum time of output ids, so that GC does not treat the outputs as old.
    """

    sst: SstOptions
    max_sst_size_bytes: int
    not_before_ms: int


class RunWriter:
    """Writes merged rows as SSTs of bounded size; all versions of a key are in one SST."""

    def __init__(
        self,
        store: SstUploads,
        root: str,
        env: Env,
        tasks: TaskGroup,
        *,
        options: OutputOptions,
        on_sst: Callable[[Sst], None],
    ) -> None:
        """Create a writer; no request is made yet.

        Args:
            tasks: runs the uploads; the first error there ends the range.
            on_sst: called with each finished SST, in key order.
        """
        self._store = store
        self._root = root
        self._env = env
        self._tasks = tasks
        self._options = options
        self._on_sst = on_sst
        self._current: _Upload | None = None
        self._closing: _Upload | None = None

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of blocks that are not in a finished SST yet."""
        return sum(upload.builder.data_len for upload in (self._current, self._closing) if upload is not None)

    async def add(self, rows: Rows) -> None:
        """Append rows, in key order."""
        while len(rows):
            if self._current is None:
                self._current = self._open()
            upload = self._current
            add = partial(upload.builder.add, rows, until_bytes=self._options.max_sst_size_bytes)
            taken = await self._env.cpu.run(add)
            await self._send(upload, upload.builder.take_parts())
            if taken < len(rows):
                await self._roll_over()
            rows = rows.slice(taken, len(rows))

    async def merge(self, feed: "BlockFeed", on_bytes: Callable[[int], None]) -> None:
        """Append all rows of a block merge; ``on_bytes`` gets the size of their keys and values."""
        await feed.begin()
        step = MergeStatus.FULL
        while step is not MergeStatus.DONE:
            if self._current is None:
                self._current = self._open()
                feed.merge.begin_file()
            upload = self._current
            before = upload.builder.raw_bytes
            merge = partial(upload.builder.merge, feed.merge, until_bytes=self._options.max_sst_size_bytes)
            step = await feed.advance(merge)
            if upload.builder.raw_bytes > before:
                on_bytes(upload.builder.raw_bytes - before)
            if step is MergeStatus.NEED_INPUT:  # partial parts wait: each one costs a request
                await feed.feed()
                continue
            await self._send(upload, upload.builder.take_parts())
            if step is MergeStatus.FULL:
                await self._roll_over()

    async def close(self) -> None:
        """Finish the last SST and wait until all SSTs are stored."""
        await self._roll_over()
        await self._await_closing()

    def abandon(self) -> None:
        """Release unfinished uploads; ``tasks`` has ended, so no upload takes the closed stream for its end."""
        for upload in (self._current, self._closing):
            if upload is not None:
                upload.close()

    def _open(self) -> "_Upload":
        sst_id = self._env.ids.ulid(at_least_ms=self._options.not_before_ms)
        return _Upload(sst_id, SstBuilder(self._options.sst))

    async def _send(self, upload: "_Upload", parts: Sequence[BytesLike]) -> None:
        for part in parts:
            if not upload.is_started:  # start with the first part: a merge may drop all rows
                upload.is_started = True
                self._tasks.start_soon(self._upload, upload, name=f"upload.{upload.id}")
            await upload.send(part)

    async def _upload(self, upload: "_Upload") -> None:
        await upload.run(self._store, sst_key(self._root, upload.id))
        # Called in key order: the next SST is not closed before this one is done.
        assert upload.sst is not None, "the stream ends after the SST is finished"
        self._on_sst(upload.sst)
        upload.done.set()

    async def _roll_over(self) -> None:
        """Close the current SST in the background, after the previous one is stored."""
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
        with upload.sending():
            await self._send(upload, parts)

    async def _await_closing(self) -> None:
        upload, self._closing = self._closing, None
        if upload is not None:
            await upload.done.wait()


class _Upload:
    """The upload of one SST."""

    def __init__(self, sst_id: Ulid, builder: SstBuilder) -> None:
        self.id = sst_id
        self.builder = builder
        self.is_started = False
        self.sst: Sst | None = None
        self.done = anyio.Event()
        self._parts: MemoryObjectSendStream[BytesLike]
        self._parts, self._receive = anyio.create_memory_object_stream[BytesLike](_PARTS_IN_FLIGHT)
        self._sent = 0
        self._used = 0
        self._one_used = anyio.Event()

    async def run(self, store: SstUploads, key: str) -> None:
        """Stream parts to the store until the sender is closed."""
        with self._receive:
            await store.put_stream(key, self._received())

    async def send(self, part: BytesLike) -> None:
        """Pass a part to the upload.  A part larger than usual holds a large value: wait until the store has it."""
        self._sent += 1
        await self._parts.send(part)
        if len(part) > MERGED_PART_BYTES:
            while self._used < self._sent:
                self._one_used = anyio.Event()
                await self._one_used.wait()

    def sending(self) -> "MemoryObjectSendStream[BytesLike]":
        """Return a context that ends the upload."""
        return self._parts

    def close(self) -> None:
        """Close both ends of the stream."""
        self._parts.close()
        self._receive.close()

    async def _received(self) -> AsyncIterator[BytesLike]:
        async for part in self._receive:
            yield part
            del part  # the store asks for the next one, and this one must not stay until that exists
            self._used += 1
            self._one_used.set()
