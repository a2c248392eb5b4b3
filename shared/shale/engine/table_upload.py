"""All SSTs of a frozen memtable, one for each segment that it touches, on their way to the store.

Source: docs/protocol.md 4.8.3.
"""

from collections.abc import Callable, Sequence
from functools import partial

import anyio

from shale.engine.frozen_table import FrozenTable
from shale.engine.l0_upload import L0Uploader
from shale.engine.writer_parts import WriterParts
from shale.errors import UnavailableError
from shale.kernels.rows import Rows
from shale.store.gather import gather
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import KeyRange, Sst, Ulid

log = get_logger("memtable")


class TableUploads:
    """Uploads, each repeated until the store takes it, and all of them within one limit.

    Args:
        parts: of the writer.
        uploader: makes SSTs.
        sst_key: where an SST of ours is.
        min_seq: asked before each SST; see ``L0Uploader.upload``.
        on_trouble: told when an upload fails for the first time.
    """

    def __init__(
        self,
        parts: WriterParts,
        uploader: L0Uploader,
        *,
        sst_key: Callable[[Ulid], str],
        min_seq: Callable[[], int],
        on_trouble: Callable[[], None],
    ) -> None:
        self.failing = 0
        self._uploader = uploader
        self._sst_key = sst_key
        self._min_seq = min_seq
        self._on_trouble = on_trouble
        self._retry_s = parts.options.manifest_poll_interval_s
        self._limit = anyio.CapacityLimiter(parts.options.l0_flush_parallelism)

    async def upload(self, frozen: FrozenTable, sst_ids: Sequence[Ulid]) -> None:
        """Upload a sorted table, whose ``ssts`` are known then.

        Args:
            sst_ids: one for each of its segments, which were drawn in the order in which tables are published.
        """
        assert frozen.sorted
        pieces = [frozen.table.rows(KeyRange.with_prefix(prefix)) for prefix in frozen.segments]
        assert sum(map(len, pieces)) == frozen.table.row_count, "every row belongs to a segment that was noted"
        ssts = await gather(
            [
                partial(self._upload_one, rows, sst_id, frozen.last_tick)
                for rows, sst_id in zip(pieces, sst_ids, strict=True)
            ]
        )
        frozen.ssts = tuple((prefix, sst) for prefix, sst in zip(frozen.segments, ssts, strict=True) if sst is not None)
        log.debug(
            Event.MEMTABLE_FLUSH_OK,
            sst_id=str(frozen.ssts[0][1].id) if frozen.ssts else None,
            ssts=len(frozen.ssts),
            last_seq=frozen.last_seq,
            bytes=frozen.size_bytes,
        )

    async def _upload_one(self, rows: Rows, sst_id: Ulid, now_tick: int) -> Sst | None:
        key = self._sst_key(sst_id)
        failing = False
        try:
            while True:
                try:
                    async with self._limit:
                        return await self._uploader.upload(
                            rows, sst_id, key, min_seq=self._min_seq(), now_tick=now_tick
                        )
                except UnavailableError as error:
                    log.info(Event.STORE_REQUEST_RETRIED, op="put", error=str(error))
                    if not failing:
                        failing = True
                        self.failing += 1
                        self._on_trouble()
                    await anyio.sleep(self._retry_s)
        finally:
            self.failing -= failing
