"""Adapters to a database: each has the same few methods, so that one set of rules runs on all of them.

What a adapter does not have (HTTP has no merge, for instance) is done by the library below it.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import shale
from shale import sync
from shale.testing.model import Op, Span
from shale.types import Row

if TYPE_CHECKING:
    from shale.sync.loop_thread import LoopThread

T = TypeVar("T")
Run = Callable[[Callable[[], Coroutine[Any, Any, T]]], T]
Pairs = list[tuple[bytes, bytes]]


class DatabaseAdapter(Protocol):
    """The operations that the rules call.  Times to live are milliseconds; writes return (seq, create_ts)."""

    def put(self, key: bytes, value: bytes, ttl_ms: int | None, durable: bool) -> tuple[int, int]: ...

    def delete(self, key: bytes) -> tuple[int, int] | None: ...

    def merge(self, key: bytes, operand: bytes) -> tuple[int, int]: ...

    def write(self, ops: Sequence[Op], seq: int | None) -> tuple[int, int]: ...

    def compare_and_set(self, key: bytes, expected: bytes | None, ops: Sequence[Op]) -> tuple[int, int] | None: ...

    def get(self, key: bytes, **options: Any) -> bytes | None: ...

    def get_row(self, key: bytes) -> Row | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, span: Span, *, reverse: bool, limit: int | None, **options: Any) -> Pairs: ...

    def snapshot(self, *, durable: bool) -> Any: ...

    def transaction(self, isolation: str) -> Any: ...


def batch_of(ops: Sequence[Op]) -> shale.WriteBatch:
    batch = shale.WriteBatch()
    for op in ops:
        add(batch, op)
    return batch


def add(target: Any, op: Op) -> None:
    """Add a write to a batch or a transaction."""
    if op.kind == "put":
        target.put(op.key, op.value, ttl=None if op.ttl_ms is None else f"{op.ttl_ms}ms")
    elif op.kind == "merge":
        target.merge(op.key, op.value)
    else:
        target.delete(op.key)


class SyncAdapter:
    """``shale.sync`` on a loop that the test drives; the thread has tests of its own.

    ``inner`` may be a database, a snapshot or a transaction.
    """

    def __init__(self, db: Any) -> None:
        self.db = db

    @classmethod
    def on(cls, db: shale.Db, run: "Run[Any]") -> "SyncAdapter":
        """Return an adapter of an open database."""
        return cls(sync.Db(db, cast("LoopThread", _SimulatedBackground(run))))

    def put(self, key: bytes, value: bytes, ttl_ms: int | None, durable: bool) -> tuple[int, int]:
        handle = self.db.put(key, value, ttl=None if ttl_ms is None else f"{ttl_ms}ms")
        if durable:
            handle.durable()
        return handle.seq, handle.create_ts

    def delete(self, key: bytes) -> tuple[int, int] | None:
        handle = self.db.delete(key)
        return handle.seq, handle.create_ts

    def merge(self, key: bytes, operand: bytes) -> tuple[int, int]:
        handle = self.db.merge(key, operand)
        return handle.seq, handle.create_ts

    def write(self, ops: Sequence[Op], seq: int | None) -> tuple[int, int]:
        handle = self.db.write(batch_of(ops), seq=seq)
        return handle.seq, handle.create_ts

    def compare_and_set(self, key: bytes, expected: bytes | None, ops: Sequence[Op]) -> tuple[int, int] | None:
        tx = self.transaction("serializable")
        if tx.get(key) != expected:
            tx.rollback()
            return None
        for op in ops:
            tx.stage(op)
        return tx.commit(durable=False)

    def get(self, key: bytes, **options: Any) -> bytes | None:
        return cast("bytes | None", self.db.get(key, **options))

    def get_row(self, key: bytes) -> Row | None:
        return cast("Row | None", self.db.get_row(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return cast("list[bytes | None]", self.db.get_many(keys))

    def scan(self, span: Span, *, reverse: bool, limit: int | None, **options: Any) -> Pairs:
        rows = self.begin_scan(span, reverse=reverse, limit=limit, **options)
        return [(row.key, row.value) for row in rows]

    def begin_scan(self, span: Span, **options: Any) -> Any:
        return self.db.scan(start=span.start, stop=span.stop, prefix=span.prefix, **options)

    def snapshot(self, *, durable: bool) -> "SyncAdapter":
        return SyncAdapter(self.db.snapshot(durable=durable))

    def transaction(self, isolation: str) -> "SyncAdapter":
        return SyncAdapter(self.db.transaction(isolation))

    def stage(self, op: Op) -> None:
        """Add a write to a transaction."""
        add(self.db, op)

    def commit(self, *, durable: bool) -> tuple[int, int] | None:
        handle = self.db.commit(durable=durable)
        return None if handle is None else (handle.seq, handle.create_ts)

    def rollback(self) -> None:
        self.db.rollback()

    def close(self) -> None:
        self.db.close()

    @property
    def seq(self) -> int:
        return int(self.db.seq)


class AsyncAdapter(SyncAdapter):
    """The library itself: everything is awaited."""

    def __init__(self, db: Any, run: "Run[Any]") -> None:
        super().__init__(db if isinstance(db, _AwaitingProxy) else _AwaitingProxy(db, run))
        self._run = run

    def scan(self, span: Span, *, reverse: bool, limit: int | None, **options: Any) -> Pairs:
        scan = super().begin_scan(span, reverse=reverse, limit=limit, **options)

        async def rows() -> Pairs:
            return [(row.key, row.value) async for row in scan]

        return cast("Pairs", self._run(rows))

    def begin_scan(self, span: Span, **options: Any) -> Any:
        return _AwaitingProxy(super().begin_scan(span, **options), self._run)

    def snapshot(self, *, durable: bool) -> "AsyncAdapter":
        return AsyncAdapter(self.db.snapshot(durable=durable), self._run)

    def transaction(self, isolation: str) -> "AsyncAdapter":
        return AsyncAdapter(self.db.transaction(isolation), self._run)


class _AwaitingProxy:
    """Await what a method of the inner object returns, if it is awaitable."""

    def __init__(self, inner: Any, run: "Run[Any]") -> None:
        self._inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            async def work() -> Any:
                made = found(*args, **options)
                # A scan has ``__await__`` only to say that it cannot be awaited.
                return await made if hasattr(made, "__await__") and not hasattr(made, "__anext__") else made

            made = self._run(work)
            return _AwaitingProxy(made, self._run) if hasattr(made, "durable") or hasattr(made, "get_many") else made

        return call


class _SimulatedBackground:
    """The background that ``shale.sync`` needs, on the loop of a simulation."""

    is_over = False

    def __init__(self, run: "Run[Any]") -> None:
        self._run = run

    def call(self, work: Coroutine[Any, Any, T], *, undo: object = None) -> T:
        async def begun() -> T:
            return await work

        return cast("T", self._run(begun))

    def call_function(self, work: Callable[[], T]) -> T:
        async def plain() -> T:
            return work()

        return cast("T", self._run(plain))

    def post(self, work: Callable[[], object]) -> None:
        work()

    def close_at_exit(self, *_: object) -> None:
        """Do nothing: no resource is open."""

    unregister = close_at_exit
