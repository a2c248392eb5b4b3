"""``SyncClient``: the blocking form of ``Client``, which runs on an event loop in its own thread."""

from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from shale.client.client import Client, RemoteSnapshot
from shale.concurrency.blocking import BlockingHandle, blocking, blocking_iterator, parameters_of

T = TypeVar("T")

_ROWS_PER_TRIP = 512
"""Rows of a scan per trip to the other thread, which costs as much as many rows."""


class SyncSnapshot(BlockingHandle[RemoteSnapshot]):
    """See ``RemoteSnapshot``."""

    @property
    def id(self) -> str:
        """The id of the snapshot on the server."""
        return self._inner.id

    @property
    def seq(self) -> int:
        """The newest commit that is visible in the snapshot."""
        return self._inner.seq

    renew = blocking(RemoteSnapshot.renew)


class SyncClient(BlockingHandle[Client]):
    """The blocking form of ``Client``, with the same arguments.  Use it with ``with``, or close it."""

    @parameters_of(Client.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            client = self._portal.call(partial(Client, *args, **options))
            stack.callback(self._portal.call, client.close)
            super().__init__(client, partial(_run, self._portal))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the thread."""
        self._stack.close()

    get = blocking(Client.get)
    get_row = blocking(Client.get_row)
    get_many = blocking(Client.get_many)
    put = blocking(Client.put)
    merge = blocking(Client.merge)
    delete = blocking(Client.delete)
    batch = blocking(Client.batch)
    txn = blocking(Client.txn)
    scan = blocking_iterator(Client.scan, fetch=_ROWS_PER_TRIP)
    scan_arrow = blocking(Client.scan_arrow)

    @parameters_of(Client.snapshot)
    @contextmanager
    def snapshot(self, **options: Any) -> Iterator[SyncSnapshot]:
        """Keep the current state on the server until the block ends; see ``Client.snapshot``."""
        with self._portal.wrap_async_context_manager(self._inner.snapshot(**options)) as remote:
            yield SyncSnapshot(remote, self._run)


def _run(portal: BlockingPortal, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the portal's thread."""

    async def main() -> T:
        return await work

    try:
        return portal.call(main)
    except RuntimeError:  # the portal was closed
        work.close()
        raise
