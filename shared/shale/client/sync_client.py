"""``SyncClient``: the methods of ``Client``, blocking.  An event loop in a thread of its own does the work."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import start_blocking_portal

from shale.client.client import Client, RemoteSnapshot
from shale.client.ops import Compare, Ops, Written
from shale.engine.batch import BytesLike
from shale.engine.read_point import Durability
from shale.types import Row

T = TypeVar("T")


class SyncSnapshot:
    """See ``RemoteSnapshot``."""

    def __init__(self, client: "SyncClient", remote: RemoteSnapshot) -> None:
        self._client = client
        self.remote = remote

    @property
    def id(self) -> str:
        """What the server calls it."""
        return self.remote.id

    @property
    def seq(self) -> int:
        """The newest commit that shows in it."""
        return self.remote.seq

    def renew(self) -> None:
        """Begin its lease anew; raises ``StateGone`` if it is over."""
        self._client.wait(self.remote.renew)


class SyncClient:
    """See ``Client``, whose arguments it takes.  Use it with ``with``, or close it."""

    def __init__(self, url: str, **options: Any) -> None:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            self._client = self._portal.call(partial(Client, url, **options))
            stack.callback(self._portal.call, self._client.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        self._stack.close()

    def wait(self, call: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Any) -> T:
        """Run a call of the other client."""
        result: T = self._portal.call(partial(call, *args, **options))
        return result

    def get(
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: SyncSnapshot | None = None
    ) -> bytes | None:
        """See ``Client.get``."""
        return self.wait(self._client.get, key, durability=durability, snapshot=_remote(snapshot))

    def get_row(
        self, key: BytesLike, *, durability: Durability = "memory", snapshot: SyncSnapshot | None = None
    ) -> Row | None:
        """See ``Client.get_row``."""
        return self.wait(self._client.get_row, key, durability=durability, snapshot=_remote(snapshot))

    def get_many(
        self, keys: Sequence[BytesLike], *, durability: Durability = "memory", snapshot: SyncSnapshot | None = None
    ) -> list[bytes | None]:
        """See ``Client.get_many``."""
        return self.wait(self._client.get_many, keys, durability=durability, snapshot=_remote(snapshot))

    def put(self, key: BytesLike, value: BytesLike, **options: Any) -> Written:
        """See ``Client.put``."""
        return self.wait(self._client.put, key, value, **options)

    def merge(self, key: BytesLike, operand: BytesLike, **options: Any) -> Written:
        """See ``Client.merge``."""
        return self.wait(self._client.merge, key, operand, **options)

    def delete(self, key: BytesLike, *, durable: bool = True) -> Written:
        """See ``Client.delete``."""
        return self.wait(self._client.delete, key, durable=durable)

    def batch(self, ops: Ops, *, durable: bool = True) -> Written:
        """See ``Client.batch``."""
        return self.wait(self._client.batch, ops, durable=durable)

    def txn(self, compare: Iterable[Compare], ops: Ops | None = None, *, durable: bool = True) -> Written:
        """See ``Client.txn``."""
        return self.wait(self._client.txn, compare, ops, durable=durable)

    def scan(self, *, snapshot: SyncSnapshot | None = None, **options: Any) -> Iterator[Row]:
        """See ``Client.scan``."""
        rows = self._client.scan(snapshot=_remote(snapshot), **options)
        try:
            while chunk := self.wait(_some, rows):
                yield from chunk
        finally:
            self.wait(rows.aclose)

    def scan_arrow(self, *, snapshot: SyncSnapshot | None = None, **options: Any) -> Any:
        """See ``Client.scan_arrow``."""
        return self.wait(self._client.scan_arrow, snapshot=_remote(snapshot), **options)

    @contextmanager
    def snapshot(self, **options: Any) -> Iterator[SyncSnapshot]:
        """See ``Client.snapshot``."""
        with self._portal.wrap_async_context_manager(self._client.snapshot(**options)) as remote:
            yield SyncSnapshot(self, remote)


_ROWS_AT_ONCE = 512


async def _some(rows: Any) -> list[Row]:
    """Some rows; none at the end.  A trip to the other thread costs as much as many rows."""
    found: list[Row] = []
    async for row in rows:
        found.append(row)
        if len(found) == _ROWS_AT_ONCE:
            break
    return found


def _remote(snapshot: SyncSnapshot | None) -> RemoteSnapshot | None:
    return None if snapshot is None else snapshot.remote
