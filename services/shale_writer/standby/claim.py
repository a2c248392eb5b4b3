"""Becomes the writer after the epoch that a standby has watched, and only then.

Two standbys may decide at the same time.  The claim is conditional on the epoch, so the first one wins, and the other
goes on waiting: it has written nothing.
"""

from shale.engine.location import ConnectedDatabase
from shale.engine.open import open_writer
from shale.engine.options import DbOptions
from shale.engine.write.writer import Writer
from shale.env import Env
from shale.kernels.rows import Rows
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.transactional import EpochTaken
from shale.telemetry.metrics import Metrics
from shale.types import WalId
from shale_writer.standby.decision import Reason
from shale_writer.standby.watch import Takeover


async def claim(
    database: ConnectedDatabase,
    options: DbOptions,
    env: Env,
    metrics: Metrics,
    takeover: Takeover,
    *,
    wal_rows: dict[int, Rows] | None = None,
) -> Writer:
    """Open the database as its next writer, and replay its WAL.

    Args:
        database: its stores and path.
        options: those of the writer.
        env: clock, ids, CPU.
        metrics: gets the writer's metrics.
        takeover: the decision.
        wal_rows: of WAL files that the standby has read, by id; removed as they are replayed.

    Raises:
        EpochTaken: another process has become the writer meanwhile; nothing was written.
        FencedError: this process had become the writer, and was fenced.
        ShaleError: as ``open_writer``.
    """

    async def admit(stored: StoredManifest, _last_wal_id: WalId) -> None:
        # The WAL was read since the manifest was: that may have taken seconds.
        await stored.refresh()
        newest = stored.value.writer_epoch
        if takeover.reason is not Reason.PROMOTED and newest != takeover.epoch:
            raise EpochTaken(f"writer epoch {newest} is newer than {takeover.epoch}, which this standby has watched")

    return await open_writer(database, options, env=env, metrics=metrics, admit=admit, wal_rows=wal_rows)
