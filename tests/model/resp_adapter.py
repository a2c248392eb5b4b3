"""The Redis protocol, spoken with a session without sockets."""

from collections.abc import Sequence
from typing import Any

import shale
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS, WRITER_COMMANDS
from shale.resp.options import RespOptions
from shale.resp.session import RespSession
from shale.service.process import PortServices
from shale.telemetry.metrics import Metrics
from shale.testing.model import Op, Span
from tests.model.adapters import AsyncAdapter, Pairs, Run
from tests.model.harness import Harness
from tests.unit.resp.harness import Talker


class RespAdapter(AsyncAdapter):
    """The library does what Redis lacks: merges, snapshots and sequence numbers of commits."""

    def __init__(self, db: Any, run: "Run[Any]", say: Talker) -> None:
        super().__init__(db, run)
        self._say = say

    @classmethod
    def of(cls, db: shale.Db, harness: Harness) -> "RespAdapter":
        """Return an adapter of an open database."""
        backend = Backend(db, harness.process.env, RespOptions(), PortServices(), COMMANDS, metrics=Metrics())
        return cls(db, harness.run, Talker(RespSession(backend, WRITER_COMMANDS)))

    def put(self, key: bytes, value: bytes, ttl_ms: int | None, durable: bool) -> tuple[int, int]:
        life = () if ttl_ms is None else ("PX", ttl_ms)
        assert self._ask("SET", key, value, *life) == "OK"
        if durable:
            assert self._ask("WAITAOF", 1, 0, 0) == [1, 0]
        return self._written()

    def delete(self, key: bytes) -> tuple[int, int] | None:
        """Delete an existing key only: RESP writes no tombstone for an absent one."""
        return self._written() if self._ask("DEL", key) else None

    def write(self, ops: Sequence[Op], seq: int | None) -> tuple[int, int]:
        if seq is not None or any(op.kind != "put" for op in ops):
            return super().write(ops, seq)
        if all(op.ttl_ms is None for op in ops) and len(ops) % 2:
            assert self._ask("MSET", *(part for op in ops for part in (op.key, op.value))) == "OK"
        else:
            self._queue(ops)
            assert self._ask("EXEC") == ["OK"] * len(ops)
        return self._written()

    def compare_and_set(self, key: bytes, expected: bytes | None, ops: Sequence[Op]) -> tuple[int, int] | None:
        if any(op.kind != "put" for op in ops):
            return super().compare_and_set(key, expected, ops)
        self._ask("WATCH", key)
        if self._ask("GET", key) != expected:
            self._ask("UNWATCH")
            return None
        self._queue(ops)
        assert self._ask("EXEC") == ["OK"] * len(ops)
        return self._written()

    def get(self, key: bytes, **options: Any) -> bytes | None:
        return super().get(key, **options) if options else self._ask("GET", key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._ask("MGET", *keys) if keys else []
        assert not keys or self._ask("EXISTS", *keys) == sum(value is not None for value in values)
        return values

    def scan(self, span: Span, *, reverse: bool, limit: int | None, **options: Any) -> Pairs:
        if options or limit == 0:
            return super().scan(span, reverse=reverse, limit=limit, **{"hide_expired": True, **options})
        words: list[str | bytes | int] = ["REVERSE"] if reverse else []
        for name, value in (("START", span.start), ("STOP", span.stop), ("PREFIX", span.prefix)):
            words += [] if value is None else [name, value]
        pairs: Pairs = []
        token = None
        while limit is None or len(pairs) < limit:
            count = 3 if limit is None else limit - len(pairs)
            more = () if token is None else ("RESUME", token)
            token, parts = self._ask("SHALE.SCAN", *words, "LIMIT", count, *more)
            pairs += zip(parts[::2], parts[1::2], strict=True)
            if token is None:
                break
        return pairs

    def _queue(self, ops: Sequence[Op]) -> None:
        assert self._ask("MULTI") == "OK"
        for op in ops:
            life = () if op.ttl_ms is None else ("PX", op.ttl_ms)
            assert self._ask("SET", op.key, op.value, *life) == "QUEUED"

    def _written(self) -> tuple[int, int]:
        handle = self._say.session.writes.last_write
        assert handle is not None
        return handle.seq, handle.create_ts

    def _ask(self, *words: str | bytes | int) -> Any:
        return self._run(lambda: self._say(*words))
