"""Subscriptions to the status of a writer or a reader.

Source: SlateDB ``Db::subscribe``, whose receiver has these semantics.
"""

from collections.abc import Callable
from typing import NamedTuple

from shale.concurrency.signal import Signal
from shale.errors import ShaleError
from shale.types import Manifest


class StatusUpdate(NamedTuple):
    """The status of a writer or a reader at one moment.

    Args:
        durable_seq: all rows up to this sequence number are durable; of a reader: the newest one that it shows.
        manifest_id: the version of ``manifest``.
        manifest: the newest manifest that the handle knows.
        segments: the prefixes of all segments, also of rows in memory.
        problem: the error that stopped the handle; a ``ClosedError`` after ``close``; ``None`` while it is open.
    """

    durable_seq: int
    manifest_id: int
    manifest: Manifest
    segments: tuple[bytes, ...]
    problem: ShaleError | None


class StatusSubscription:
    """An async iterator: the status now, then the newest one after every change.

    Changes that the caller was too slow for are skipped, so a subscription takes no memory.  It ends after the status
    with a ``problem``.

    Args:
        read: returns the status.
        changed: is notified after every change.
    """

    __slots__ = ("_changed", "_last", "_read")

    def __init__(self, read: Callable[[], StatusUpdate], changed: Signal) -> None:
        self._read = read
        self._changed = changed
        self._last: StatusUpdate | None = None

    def __aiter__(self) -> "StatusSubscription":
        return self

    async def __anext__(self) -> StatusUpdate:
        if self._last is not None and self._last.problem is not None:
            raise StopAsyncIteration
        while not self._is_news(update := self._read()):
            await self._changed.wait()
        self._last = update
        return update

    def _is_news(self, update: StatusUpdate) -> bool:
        """Whether an update differs from the last one; a manifest is known by its version."""
        last = self._last
        return last is None or last._replace(manifest=update.manifest) != update
