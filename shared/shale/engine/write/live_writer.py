"""Refuses to take a database over from a writer that seems to be alive (``take_over=False``).

It is for convenience, never for safety: only the epoch decides who may write.  A writer of Shale shows that it is alive
(``shale.types.writer_sign``).  SlateDB's writers show nothing, so a database that was written to a short time ago and
was not closed counts as in use.

Source: docs/reference/protocol.md 9.1.
"""

from collections.abc import Awaitable, Callable
from time import gmtime, strftime

from shale.engine.write.clean_close import was_closed
from shale.errors import ONE_WRITER, ConflictError
from shale.protocol.manifest_store import StoredManifest
from shale.types import WalId
from shale.types.writer_sign import WriterPresence, WriterStatus, writer_status

RECENT_MS = 600_000
"""A database without a change for this long counts as left by its writer, if that shows no sign of life."""

WalTime = Callable[[WalId], Awaitable[int | None]]
"""Returns when a WAL file was written, in milliseconds since 1970; ``None`` if there is none."""


_HINT = f"{ONE_WRITER}; if that process has ended without a close, open with take_over=True"


class LiveWriter(ConflictError):
    """Another writer seems to be alive, and was not fenced.

    ``found``: who it is, without a hint what to do.  ``status``: what its manifest tells about it.
    """

    def __init__(self, found: str, status: WriterStatus, hint: str = _HINT) -> None:
        super().__init__(f"{found}; {hint}")
        self.found = found
        self.status = status
        self._hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.found, self.status, self._hint)


async def require_no_live_writer(stored: StoredManifest, last_wal_id: WalId, *, now_ms: int, wal_time: WalTime) -> None:
    """Require that no writer seems to be alive.

    After a clean close that is some time ago this costs no request, after a recent one usually one.

    Raises:
        LiveWriter: the writer of the newest epoch showed a sign of life, or wrote a short time ago and did not close.
    """
    status = writer_status(stored.value, now_ms)
    if status.presence is WriterPresence.SIGNED:
        raise LiveWriter(describe(status), status)
    if status.presence is not WriterPresence.UNKNOWN:
        return
    times_ms = [stored.current.modified_ms]
    is_clean = last_wal_id < stored.value.next_wal_sst_id
    if not is_clean:
        times_ms.append(await wal_time(last_wal_id))
    newest_ms = max((each for each in times_ms if each is not None), default=now_ms)
    if now_ms - newest_ms < RECENT_MS and not (is_clean and await was_closed(stored) is not False):
        raise LiveWriter(
            f"writer epoch {status.epoch} wrote {_seconds(now_ms - newest_ms)} ago and did not close the database; "
            "it shows no sign of life, as a SlateDB writer does not",
            status,
        )


def describe(status: WriterStatus) -> str:
    """Return who the writer is, where and since when."""
    identity = status.identity
    if identity is None:
        return f"writer epoch {status.epoch}"
    parts = [
        f"on host {identity.host or 'unknown'}",
        f"since {_time(identity.since_s)}",
        *([f"at {identity.endpoint}"] if identity.endpoint else []),
        *([f"holder {identity.holder}"] if identity.holder else []),
        *([f"its sign of life expires at {_time(status.expire_s)}"] if status.expire_s is not None else []),
    ]
    return f"writer epoch {status.epoch} is running ({', '.join(parts)})"


def _time(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))


def _seconds(milliseconds: int) -> str:
    return f"{max(0, milliseconds) // 1000} s"
