"""A state machine: ``Db`` behaves as a dict, also after flushes, reopenings and kills."""

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shale
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.examples import examples

KEYS = st.sampled_from([b"a", b"b", b"ba", b"bb", b"c", b"\x00", b"\xff\xff"])
BOUNDS = KEYS | st.none()
VALUES = st.binary(max_size=30)
BATCHES = st.dictionaries(KEYS, VALUES | st.none(), min_size=1, max_size=5)
METRICS = Metrics()


class Database(RuleBasedStateMachine):
    """``model`` holds all writes; ``durable`` holds the rows that must survive a writer that is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore()
        self.model: dict[bytes, bytes] = {}
        self.durable: dict[bytes, bytes] = {}
        self.db: Any = None

    def run(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    @initialize(table_bytes=st.sampled_from([60, 300, 10_000]), interval=st.sampled_from([0, None]))
    def open(self, table_bytes: int, interval: float | None) -> None:
        self.settings = {
            "l0_sst_size_bytes": table_bytes,
            "max_unflushed_bytes": 1 << 20,
            "l0_max_ssts": 1000,
            "l0_max_ssts_per_key": 1000,
            "flush_interval": interval,
            "min_filter_keys": 2,
        }
        self.reopen_without_closing()

    def reopen_without_closing(self) -> None:
        async def opened() -> shale.Db:
            return await shale.Db.open("db", store=self.store, metrics=METRICS, **self.settings)

        self.db = self.run(opened())

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.run(self.db.put(key, value))
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.run(self.db.delete(key))
        self.model.pop(key, None)

    @rule(rows=BATCHES)
    def batch(self, rows: dict[bytes, bytes | None]) -> None:
        batch = shale.WriteBatch()
        for key, value in rows.items():
            if value is None:
                batch.delete(key)
                self.model.pop(key, None)
            else:
                batch.put(key, value)
                self.model[key] = value
        self.run(self.db.write(batch))

    @rule(kind=st.sampled_from(["wal", "memtable"]))
    def flush(self, kind: str) -> None:
        self.run(self.db.flush(kind))
        self.durable = dict(self.model)

    @rule(kind=st.sampled_from(["wal", "memtable"]))
    def close_and_reopen(self, kind: str) -> None:
        self.run(self.db.close(kind))
        self.reopen_without_closing()
        self.durable = dict(self.model)

    @precondition(lambda self: self.model == self.durable)
    @rule()
    def replace_a_writer_that_still_runs(self) -> None:
        old = self.db
        self.reopen_without_closing()
        self.run(self._abandon(old))

    async def _abandon(self, old: shale.Db) -> None:
        try:
            await old.close("none")
        except shale.FencedError:
            return

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.run(self.db.get(key)) == self.model.get(key)

    @rule(
        start=KEYS | st.none(),
        stop=KEYS | st.none(),
        prefix=st.sampled_from([None, b"b"]),
        limit=st.none() | st.just(2),
    )
    def scan(self, start: bytes | None, stop: bytes | None, prefix: bytes | None, limit: int | None) -> None:
        async def scanned() -> list[tuple[bytes, bytes]]:
            rows = self.db.scan(start=start, stop=stop, prefix=prefix, limit=limit)
            return [(row.key, row.value) async for row in rows]

        wanted = [
            (key, value)
            for key, value in sorted(self.model.items())
            if (start is None or key >= start)
            and (stop is None or key < stop)
            and (prefix is None or key.startswith(prefix))
        ]
        assert self.run(scanned()) == wanted[:limit]

    @invariant()
    def sequence_numbers_agree(self) -> None:
        if self.db is not None:
            assert self.db.status.durable_seq <= self.db.status.last_seq
            assert self.db.status.manifest.last_l0_seq <= self.db.status.durable_seq

    def teardown(self) -> None:
        if self.db is not None:
            self.run(self.db.close("none"))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestDatabase = Database.TestCase
TestDatabase.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
