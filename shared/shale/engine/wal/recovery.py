"""Recovery of a writer at open: rows of the WAL become memtables again; all but the last are flushed at once.

Source: docs/reference/protocol.md 4.6.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.memtable import Memtable
from shale.engine.memtable.row_order import merged_parts
from shale.engine.memtable.sorted_part import SortedPart
from shale.engine.wal.replay import ReplayedRows, replay_wal
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.engine.write.pipeline import WritePipeline
from shale.env import Env
from shale.errors import WalTruncated
from shale.kernels.rows import Rows
from shale.protocol.wal_store import WalStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

_PIECE_BYTES = 2 << 20
log = get_logger("wal")


@dataclass(frozen=True, slots=True)
class WalRecovery:
    """Installs the rows of the WAL in a writer that accepts no writes yet.

    Args:
        wal: the WAL files.
        pipeline: gets the memtables.
        manifest: says where replay begins.
        durability: told that replayed rows are durable.
        env: clock and CPU.
        instruments: counts files and seconds.
    """

    wal: WalStore
    pipeline: WritePipeline
    manifest: WriterManifest
    durability: DurabilityTracker
    env: Env
    instruments: WriterInstruments

    async def run(self, last_id: int, known: dict[int, Rows], max_table_bytes: int) -> None:
        """Install the rows of all WAL files after the manifest's replay point.

        Args:
            last_id: the fence of this writer.
            known: rows of files that were read before the claim, by id; removed as they are installed.
            max_table_bytes: the estimated size at which a memtable is full.

        Raises:
            FencedError: a file is missing because a newer writer's collector deleted it.
            WalTruncated: a file is missing.
        """
        state = self.manifest.current
        first_id = state.replay_after_wal_id + 1
        started = self.env.clock.monotonic_s()
        rows = 0
        tables = replay_wal(
            self.wal,
            first_id,
            last_id,
            min_seq=state.last_l0_seq,
            max_table_bytes=max_table_bytes,
            env=self.env,
            known=known,
        )
        try:
            async for table in tables:
                rows += table.row_count
                await self._install(table)
                for wal_id in [each for each in known if each <= table.consumed_wal_id]:
                    del known[wal_id]
        except WalTruncated:
            # ``FencedError`` says more, if a newer writer has claimed.
            await self.manifest.refresh()
            raise
        if self.pipeline.buffers.is_memtable_full:
            # Without writes nothing else would freeze the last table.
            self.pipeline.freeze()
        seconds = self.env.clock.monotonic_s() - started
        self.instruments.wal_replay_seconds(seconds)
        self.instruments.wal_replayed(last_id - first_id + 1)
        log.info(
            Event.WAL_REPLAY_DONE,
            first_wal_id=first_id,
            last_wal_id=last_id,
            rows=rows,
            duration_ms=round(seconds * 1000),
        )

    async def _install(self, replayed: ReplayedRows) -> None:
        pipeline = self.pipeline
        if not replayed.row_count:
            pipeline.skip_replayed(replayed.consumed_wal_id)
            return
        run = self.env.cpu.run
        pieces = await gather([partial(run, partial(merged_parts, files)) for files in _pieces(replayed.parts)])
        table = Memtable.from_sorted(pieces)
        segments: set[bytes] = set()
        if pipeline.route is not None:
            segments.update(*(pipeline.route.segments_in(SortedPart(rows)) for rows in pieces))
        self.durability.check()
        # Before reads can see the table: its rows come from the WAL, so they are durable.
        self.durability.advance_durable(replayed.last_seq)
        pipeline.install(
            table,
            replayed.last_seq,
            replayed.last_tick,
            wal_id=replayed.consumed_wal_id,
            segments=sorted(segments),
        )


def _pieces(files: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Group the files of a table into a few pieces of about ``_PIECE_BYTES``, which are sorted in parallel."""
    piece: list[Rows] = []
    size_bytes = 0
    for rows in files:
        piece.append(rows)
        size_bytes += rows.size_bytes
        if size_bytes >= _PIECE_BYTES:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece
