"""What ``Db.batch()`` returns: a batch that the end of an ``async with`` block writes."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NoReturn

from shale.engine.open_context import PendingContext
from shale.engine.write.batch import WriteBatch
from shale.errors import WrongType


class BatchContext(PendingContext):
    """Collects a batch and writes it at the end of the block; an error in the block discards it."""

    def __init__(self, batch: WriteBatch, write: Callable[[WriteBatch], Awaitable[object]]) -> None:
        self._batch = batch
        self._write = write

    def __await__(self) -> NoReturn:
        self._is_used = True
        raise WrongType("db.batch() was awaited: write `async with db.batch() as batch:`, or use db.new_batch()")

    async def __aenter__(self) -> WriteBatch:
        self._is_used = True
        return self._batch

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and len(self._batch):
            await self._write(self._batch)

    def _shown(self) -> tuple[str, str]:
        return "db.batch()", "batch"

    def _how_to_use(self, call: str, handle: str) -> str:
        return f"write `async with {call} as {handle}:`"
