"""Flushes the WAL buffer with several PUTs in flight (docs/reference/protocol.md 4.13).

A file is given its id when one of ``max_parallel_writes`` PUTs is free, so rows that wait for it share one file.  PUTs
end in any order.  The durable frontier, and with it everything that the manifest says about the WAL, covers only files
below which none is missing: otherwise a flush could move the replay point past a file that is written later.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from shale.engine.wal.buffer import PendingWalFile
from shale.engine.wal.flusher import WalFlusher
from shale.engine.wal.put_window import PutWindow
from shale.errors import ShaleError

_LAST_PUTS_LIMIT_S: Final = 30.0
"""How long puts in flight may take after one has failed."""


class ParallelWalFlusher(WalFlusher):
    """Writes the WAL files of a database that was created with ``max_parallel_writes`` above 1."""

    async def run(self, fail: Callable[[ShaleError], None] | None = None) -> None:
        """Flush until cancelled, or until a PUT fails.

        After the first failure no further PUT begins; those in flight are awaited, because they may still succeed.

        Args:
            fail: called with the first error at once.

        Raises:
            FencedError: another writer took the id of a file, or claimed a newer epoch.
            ShaleError: the store refused a file.
        """
        window = PutWindow(self._manifest.current.max_parallel_writes, self._durability.durable_wal_id)
        errors: list[ShaleError] = []
        async with anyio.create_task_group() as puts:
            with anyio.CancelScope() as accepting:

                def halt(error: ShaleError) -> None:
                    window.halt()
                    if not errors:
                        self._durability.fail(error) if fail is None else fail(error)
                        accepting.cancel()
                        puts.cancel_scope.deadline = anyio.current_time() + _LAST_PUTS_LIMIT_S
                    errors.append(error)

                await self._begin_puts(puts, window, halt)
        raise errors[0]

    async def _begin_puts(self, puts: TaskGroup, window: PutWindow, halt: Callable[[ShaleError], None]) -> None:
        while True:
            await self._wait_until_due()
            while not window.has_room:
                await self._signal.wait()
            if not self._buffer.files:
                self._freeze_buffered()
            if self._buffer.files:
                file = self._buffer.take()
                window.begin(file)
                self._durability.put_begun(file.first_seq, file.last_seq)
                puts.start_soon(self._write, file, window, halt)

    async def _write(self, file: PendingWalFile, window: PutWindow, halt: Callable[[ShaleError], None]) -> None:
        size: int | None = None
        try:
            size = await self._put(file)
        except ShaleError as error:
            halt(error)
        finally:
            window.end()
            self._durability.put_ended(file.first_seq, is_written=size is not None)
            self._signal.notify()
        if size is not None:
            self._record(file, size)
            self._advance(window.written(file))

    def _advance(self, files: list[PendingWalFile]) -> None:
        """Move the durable frontier over files below which none is missing."""
        if not files or self._durability.problem is not None:
            return
        for file in files:
            self._buffer.release(file)
        self._durability.durable_wal_id = files[-1].id
        self._durability.advance_durable(files[-1].last_seq)
        self._pipeline.wal_written()
