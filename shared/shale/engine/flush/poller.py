"""Polls the manifest, so that the writer learns what compactors and admin calls have committed.

Source: docs/reference/protocol.md 4.10.
"""

from collections.abc import Awaitable, Callable

from shale.concurrency.signal import WakeEvent
from shale.core.lazy_dataclass import dataclass
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.write.instruments import WriterInstruments
from shale.errors import UnavailableError
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

log = get_logger("memtable")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPoller:
    """Refreshes the writer's manifest.

    Args:
        manifest: of the writer.
        require_alive: raises once the database is marked as destroyed.
        interval_s: option ``manifest_poll_interval``.
        on_refreshed: called after each refresh: L0 may have room again.
        instruments: counts refreshes.
    """

    manifest: WriterManifest
    require_alive: Callable[[], Awaitable[None]]
    interval_s: float
    on_refreshed: Callable[[], None]
    instruments: WriterInstruments

    async def run(self) -> None:
        """Poll until cancelled.

        Raises:
            FencedError: a newer writer has claimed, or a destroy, which fences before it writes its marker.
            InvalidDbState: the database is marked, and this writer opened between the fence and the marker.
        """
        changed = WakeEvent()
        with self.manifest.on_other_commit(changed.notify):
            while True:
                await changed.wait_for(self.interval_s)
                await self.refresh()
                try:
                    await self.require_alive()
                except UnavailableError as error:
                    log.info(Event.STORE_REQUEST_RETRIED, op="markers", error=str(error))

    async def refresh(self) -> None:
        """Read the newest manifest, and renew the writer's own checkpoint if its SSTs changed.

        Raises:
            FencedError: a newer writer has claimed.
        """
        try:
            await self.manifest.refresh()
            await self.manifest.renew_checkpoint()
        except UnavailableError as error:
            log.info(Event.STORE_REQUEST_RETRIED, op="manifest", error=str(error))
            return
        self.instruments.manifest_refreshed()
        self.on_refreshed()
