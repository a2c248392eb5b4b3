"""Replay at open: rows of the WAL become memtables again, and all but the last of them are flushed at once.

Source: docs/protocol.md 4.6.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from shale.engine.memtable import Memtable
from shale.engine.replay import ReplayedTable, replay_wal
from shale.engine.row_order import merged_parts
from shale.engine.sorted_part import SortedPart
from shale.engine.writer_parts import WriterParts
from shale.errors import WalTruncated
from shale.kernels.rows import Rows
from shale.protocol.wal_store import WalStore
from shale.store.gather import gather
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

_PIECE_BYTES = 2 << 20
log = get_logger("wal")


async def replay_into(parts: WriterParts, wal: WalStore, *, last_id: int, known: dict[int, Rows]) -> None:
    """Install the rows of every WAL file behind the manifest's replay point.

    Args:
        parts: of a writer that accepts no writes yet, whose tasks run.
        wal: the files.
        last_id: the fence of this writer.
        known: rows of files that were read before the claim; forgotten when they are installed.

    Raises:
        FencedError: a file is gone because a newer writer's collector took it.
        WalTruncated: a file is gone.
    """
    state = parts.manifest.current
    first_id = state.replay_after_wal_id + 1
    started = parts.env.clock.monotonic_s()
    rows = 0
    tables = replay_wal(
        wal,
        first_id,
        last_id,
        min_seq=state.last_l0_seq,
        max_table_bytes=parts.options.l0_sst_size_bytes,
        env=parts.env,
        known=known,
    )
    try:
        async for table in tables:
            rows += table.row_count
            await _install(parts, table)
            for wal_id in [each for each in known if each <= table.consumed_wal_id]:
                del known[wal_id]
    except WalTruncated:
        # If a newer writer has claimed, being fenced says more.
        await parts.manifest.refresh()
        raise
    parts.acceptor.freeze_full()
    seconds = parts.env.clock.monotonic_s() - started
    parts.instruments.wal_replay_seconds(seconds)
    parts.instruments.wal_replayed(last_id - first_id + 1)
    log.info(
        Event.WAL_REPLAY_DONE,
        first_wal_id=first_id,
        last_wal_id=last_id,
        rows=rows,
        duration_ms=round(seconds * 1000),
    )


async def _install(parts: WriterParts, replayed: ReplayedTable) -> None:
    acceptor = parts.acceptor
    if not replayed.row_count:
        acceptor.consumed(replayed.consumed_wal_id)
        return
    pieces = await gather([partial(parts.env.cpu.run, partial(_sorted, files)) for files in _pieces(replayed.parts)])
    table = Memtable.from_sorted(pieces)
    segments: set[bytes] = set()
    if acceptor.route is not None:
        segments.update(*(acceptor.route.segments_in(SortedPart(rows)) for rows in pieces))
    parts.progress.check()
    # Before the table is handed on: its rows come from the WAL, so they are durable.
    parts.progress.durable_through(replayed.last_seq)
    acceptor.install(
        table,
        replayed.last_seq,
        replayed.last_tick,
        consumed_wal_id=replayed.consumed_wal_id,
        segments=sorted(segments),
    )


def _pieces(files: Sequence[Rows]) -> Iterator[list[Rows]]:
    """The files of a table in pieces, each of which is sorted for itself, side by side; they are never many."""
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


def _sorted(files: Sequence[Rows]) -> Rows:
    return merged_parts(files)
