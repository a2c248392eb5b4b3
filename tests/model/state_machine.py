"""The rules: operations on a database and their expected results, independent of the adapter.

Keys come in families, so that the plain model can tell exactly what a read may show: of those that begin with ``m``
some are merged, of those that begin with ``t`` some expire.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shale
from shale.errors import InvalidSequenceNumber, TransactionConflict
from shale.merge_operators import concatenate
from shale.testing.model import Model, ModelScan, Op, Span, TransactionModel
from tests.model.adapters import DatabaseAdapter, SyncAdapter
from tests.model.harness import Harness

PLAIN = [b"a", b"b", b"ba", b"b\x00", b"c", b"\xff\xff"]
MERGED = [b"m", b"ma"]
EXPIRING = [b"t", b"ta"]
ALL_KEYS = PLAIN + MERGED + EXPIRING
KEYS = st.sampled_from(ALL_KEYS)
BOUNDS = st.none() | st.sampled_from([*PLAIN, b"m", b"n", b"t", b"u"])
VALUES = st.binary(max_size=12) | st.just(b"x" * 40)
TTLS_MS = st.sampled_from([1, 1_000, 40_000, 10_000_000])
SPANS = st.builds(
    Span,
    start=BOUNDS,
    stop=BOUNDS,
    prefix=st.sampled_from([None, None, b"b", b"m", b"t"]),
    last=st.none(),
    first=st.none(),
)
LIMITS = st.none() | st.sampled_from([0, 1, 2, 5])
PLACES = st.integers(0, 7)


@st.composite
def _ops(draw: st.DrawFn) -> Op:
    key = draw(KEYS)
    if key in MERGED and draw(st.booleans()):
        return Op("merge", key, draw(VALUES))
    if draw(st.integers(0, 3)) == 0:
        return Op("delete", key)
    return Op("put", key, draw(VALUES), draw(TTLS_MS) if key in EXPIRING and draw(st.booleans()) else None)


OPS = _ops()


class Step(NamedTuple):
    """One thing that happens in a race; ``outside`` is a write from outside the transaction."""

    what: str
    place: int
    op: Op
    span: Span
    reverse: bool
    limit: int | None


# Few keys, so that the steps of a race meet.
RACED = st.sampled_from([b"a", b"b", b"ba"])
STEPS = st.builds(
    Step,
    what=st.sampled_from(["write", "write", "get", "scan", "mark", "unmark", "outside", "outside"]),
    place=PLACES,
    op=st.builds(Op, kind=st.sampled_from(["put", "put", "delete"]), key=RACED, value=VALUES, ttl_ms=st.none()),
    span=st.builds(Span, st.none() | RACED, st.none() | RACED, st.none(), st.none(), st.none()),
    reverse=st.booleans(),
    limit=st.none() | st.just(1),
)


class OpenSnapshot:
    def __init__(self, adapter: Any, seq: int) -> None:
        self.adapter = adapter
        self.seq = seq


class OpenTransaction:
    def __init__(self, adapter: Any, model: TransactionModel) -> None:
        self.adapter = adapter
        self.model = model


class OpenScan:
    def __init__(self, scan: Any, span: Span, seq: int, reverse: bool) -> None:
        self.scan = scan
        self.span = span
        self.seq = seq
        self.reverse = reverse
        self.rows: list[tuple[bytes, bytes]] = []


class DatabaseMachine(RuleBasedStateMachine):
    """A state machine over one adapter; ``adapter_of`` is called after each open of the database."""

    hides_expired = False
    faults = True
    more_settings: ClassVar[Mapping[str, Any]] = {}

    def adapter_of(self, db: shale.Db) -> DatabaseAdapter:
        """Return the adapter."""
        raise AssertionError(f"{db} has no adapter")

    @initialize(
        seed=st.integers(0, 1 << 16),
        table_bytes=st.sampled_from([80, 400, 10_000]),
        interval=st.sampled_from([0, "50ms", None]),
        faults=st.booleans(),
        looks=st.booleans(),
    )
    def begin(self, seed: int, table_bytes: int, interval: Any, faults: bool, looks: bool) -> None:
        settings = {
            "l0_sst_size_bytes": table_bytes,
            "l0_max_ssts": 1000,
            "l0_max_ssts_per_key": 1000,
            "flush_interval": interval,
            "min_filter_keys": 2,
            "block_size_bytes": 64,
            "merge_operator": "concatenate",
            **self.more_settings,
        }
        self.harness = Harness(seed, faults=faults and self.faults, settings=settings)
        self.model = Model(concatenate)
        self.flushes_itself = interval is not None
        self.refusals = 0
        self.looks = looks
        self.open()

    def open(self) -> None:
        self.snapshots: list[OpenSnapshot] = []
        self.transactions: list[OpenTransaction] = []
        self.scans: list[OpenScan] = []
        self.db = self.harness.open()
        self.adapter = self.adapter_of(self.db)

    def note(self, written: tuple[int, int], ops: Sequence[Op], hidden: Sequence[bytes] = ()) -> None:
        self.model.commit(ops, *written, hidden=hidden)
        self.refusals = 0

    # Writes

    @rule(ops=st.lists(OPS, min_size=2, max_size=6), durable=st.booleans())
    def write(self, ops: list[Op], durable: bool) -> None:
        for op in ops:
            self.write_one(op, durable)

    @rule(ops=st.lists(OPS, min_size=2, max_size=6), kind=st.sampled_from(["wal", "memtable"]))
    def write_and_flush(self, ops: list[Op], kind: str) -> None:
        self.write(ops, False)
        self.flush(kind)

    def write_one(self, op: Op, durable: bool) -> None:
        durable = durable and self.flushes_itself
        if op.kind == "put":
            written = self.adapter.put(op.key, op.value, op.ttl_ms, durable)
            if durable:
                assert self.db.status.durable_seq >= written[0]
        elif op.kind == "delete":
            before = self.harness.now_ms()
            deleted = self.adapter.delete(op.key)
            if deleted is None:
                now = (before, self.harness.now_ms())
                self.model.check_get(None, op.key, self.model.last_seq, now, hide_expired=True)
                return
            written = deleted
        else:
            written = self.adapter.merge(op.key, op.value)
        self.note(written, [op])

    @rule(ops=st.lists(OPS, min_size=2, max_size=4), key=st.sampled_from(MERGED))
    def write_one_key_many_times(self, ops: list[Op], key: bytes) -> None:
        self.write_batch([op._replace(key=key) for op in ops], None)
        self.get_row_of(key)

    @rule(ops=st.lists(OPS, min_size=1, max_size=6), ahead=st.none() | st.integers(1, 5))
    def write_batch(self, ops: list[Op], ahead: int | None) -> None:
        ops = same_lifetimes(ops)
        seq = None if ahead is None else self.db.status.last_seq + ahead
        try:
            written = self.adapter.write(ops, seq)
        except InvalidSequenceNumber:
            assert ahead is not None
            assert ahead <= self.refusals
            return
        assert seq is None or written[0] == seq
        self.note(written, ops)

    @rule(
        key=st.sampled_from(PLAIN + MERGED),
        expected=st.none() | VALUES,
        right=st.booleans(),
        ops=st.lists(OPS, min_size=1, max_size=3),
    )
    def compare_and_set(self, key: bytes, expected: bytes | None, right: bool, ops: list[Op]) -> None:
        ops = same_lifetimes(ops)
        (value,) = self.model.possible(key, self.model.last_seq, (0, 0))
        if right:
            expected = value
        written = self.adapter.compare_and_set(key, expected, ops)
        assert (written is not None) == (value == expected)
        if written is not None:
            self.note(written, ops)

    @rule(back=st.integers(0, 3))
    def a_sequence_number_that_is_taken_is_refused(self, back: int) -> None:
        seq = self.db.status.last_seq - back
        if seq > 0:
            try:
                self.harness.run(lambda: self.db.write(one_put(), seq=seq))
            except InvalidSequenceNumber:
                return
            raise AssertionError(f"seq {seq} was taken again")

    # Reads

    @rule(durable=st.booleans())
    def get(self, durable: bool) -> None:
        for key in ALL_KEYS:
            self.get_one(key, durable)

    def get_one(self, key: bytes, durable: bool) -> None:
        before = self.harness.now_ms()
        if durable:
            seq, shown = self.db.status.durable_seq, self.adapter.get(key, durability="durable")
            hides = False
        else:
            seq, shown = self.model.last_seq, self.adapter.get(key)
            hides = self.hides_expired
        if not durable or seq == self.db.status.durable_seq:
            self.model.check_get(shown, key, seq, (before, self.harness.now_ms()), hide_expired=hides)

    @rule()
    def get_row(self) -> None:
        for key in ALL_KEYS:
            self.get_row_of(key)

    def get_row_of(self, key: bytes) -> None:
        before = self.harness.now_ms()
        row = self.adapter.get_row(key)
        self.model.check_row(row, key, self.model.last_seq, (before, self.harness.now_ms()))

    @rule(keys=st.lists(KEYS, max_size=6))
    def get_many(self, keys: list[bytes]) -> None:
        before = self.harness.now_ms()
        shown = self.adapter.get_many(keys)
        now = (before, self.harness.now_ms())
        assert len(shown) == len(keys)
        for key, value in zip(keys, shown, strict=True):
            self.model.check_get(value, key, self.model.last_seq, now, hide_expired=self.hides_expired)

    @rule(span=SPANS, reverse=st.booleans(), limit=LIMITS, hide=st.booleans())
    def scan(self, span: Span, reverse: bool, limit: int | None, hide: bool) -> None:
        before = self.harness.now_ms()
        options = {"now_ms": before} if hide and not self.hides_expired else {}
        shown = self.adapter.scan(span, reverse=reverse, limit=limit, **options)
        now = (before, self.harness.now_ms())
        hides = hide or self.hides_expired
        self.model.check_scan(shown, ModelScan(span, reverse, limit), self.model.last_seq, now, hide_expired=hides)

    @rule(key=KEYS)
    def a_reader_sees_what_is_durable(self, key: bytes) -> None:
        durable_seq = self.db.status.durable_seq
        seq, value, rows = self.harness.read(key)
        assert seq >= durable_seq
        now = (0, self.harness.now_ms())
        self.model.check_get(value, key, seq, now, lenient=True)
        self.model.check_scan(rows, ModelScan(), seq, now, lenient=True)

    # Snapshots

    @precondition(lambda self: len(self.snapshots) < 3)
    @rule(durable=st.booleans())
    def take_snapshot(self, durable: bool) -> None:
        adapter = self.adapter.snapshot(durable=durable)
        if durable:
            assert adapter.seq <= self.db.status.durable_seq
        else:
            assert adapter.seq == self.model.last_seq
        self.snapshots.append(OpenSnapshot(adapter, adapter.seq))

    @precondition(lambda self: self.snapshots)
    @rule(place=PLACES, span=SPANS, reverse=st.booleans(), limit=LIMITS)
    def read_snapshot(self, place: int, span: Span, reverse: bool, limit: int | None) -> None:
        snapshot = self.snapshots[place % len(self.snapshots)]
        before = self.harness.now_ms()
        values = [snapshot.adapter.get(key) for key in ALL_KEYS]
        rows = snapshot.adapter.scan(span, reverse=reverse, limit=limit)
        now = (before, self.harness.now_ms())
        for key, value in zip(ALL_KEYS, values, strict=True):
            self.model.check_get(value, key, snapshot.seq, now)
        self.model.check_scan(rows, ModelScan(span, reverse, limit), snapshot.seq, now)

    @precondition(lambda self: self.snapshots)
    @rule(place=PLACES)
    def close_snapshot(self, place: int) -> None:
        self.snapshots.pop(place % len(self.snapshots)).adapter.close()

    # Transactions

    @precondition(lambda self: len(self.transactions) < 3)
    @rule(serializable=st.booleans())
    def begin_transaction(self, serializable: bool) -> None:
        adapter = self.adapter.transaction("serializable" if serializable else "snapshot")
        assert adapter.seq == self.model.last_seq
        self.transactions.append(OpenTransaction(adapter, TransactionModel(adapter.seq, serializable)))

    @precondition(lambda self: self.transactions)
    @rule(place=PLACES, op=OPS)
    def write_in_transaction(self, place: int, op: Op) -> None:
        open_one = self.transactions[place % len(self.transactions)]
        if op.ttl_ms is None:
            open_one.adapter.stage(op)
            open_one.model.ops.append(op)

    @precondition(lambda self: self.transactions)
    @rule(place=PLACES, keys=st.lists(KEYS, min_size=1, max_size=3))
    def get_in_transaction(self, place: int, keys: list[bytes]) -> None:
        open_one = self.transactions[place % len(self.transactions)]
        shown = [open_one.adapter.get(keys[0])] if len(keys) == 1 else open_one.adapter.get_many(keys)
        open_one.model.read(*keys)
        now = (0, self.harness.now_ms())
        for key, value in zip(keys, shown, strict=True):
            self.model.check_get(value, key, open_one.model.seq, now, open_one.model)

    @precondition(lambda self: self.transactions)
    @rule(place=PLACES, span=SPANS, reverse=st.booleans(), limit=LIMITS)
    def scan_in_transaction(self, place: int, span: Span, reverse: bool, limit: int | None) -> None:
        open_one = self.transactions[place % len(self.transactions)]
        shown = open_one.adapter.scan(span, reverse=reverse, limit=limit)
        now = (0, self.harness.now_ms())
        self.model.check_scan(shown, ModelScan(span, reverse, limit), open_one.model.seq, now, open_one.model)
        if limit and len(shown) == limit:
            end = shown[-1][0]
            span = span._replace(first=end) if reverse else span._replace(last=end)
        open_one.model.scanned(span)

    @precondition(lambda self: self.transactions)
    @rule(place=PLACES, keys=st.lists(KEYS, min_size=1, max_size=2), read=st.booleans())
    def mark(self, place: int, keys: list[bytes], read: bool) -> None:
        open_one = self.transactions[place % len(self.transactions)]
        if read:
            open_one.adapter.db.mark_read(keys)
            open_one.model.marked.update(keys)
        else:
            open_one.adapter.db.unmark_write(keys)
            open_one.model.unmarked.update(keys)

    @precondition(lambda self: self.transactions)
    @rule(place=PLACES, durable=st.booleans(), commits=st.booleans() | st.just(True))
    def end_transaction(self, place: int, durable: bool, commits: bool) -> None:
        open_one = self.transactions.pop(place % len(self.transactions))
        if not commits:
            open_one.adapter.rollback()
            return
        tx = open_one.model
        must_fail = self.model.conflicts(tx)
        try:
            written = open_one.adapter.commit(durable=durable and self.flushes_itself)
        except TransactionConflict:
            assert must_fail, f"no writer changed what {tx} relies on"
            self.refusals += 1
            return
        assert not must_fail, f"a writer changed what {tx} relies on"
        if written is None:
            assert not tx.ops
        else:
            self.note(written, tx.ops, [op.key for op in tx.ops if op.key in tx.unmarked])

    @precondition(lambda self: len(self.transactions) < 3)
    @rule(serializable=st.booleans(), other=st.booleans(), steps=st.lists(STEPS, min_size=2, max_size=8))
    def race(self, serializable: bool, other: bool, steps: list[Step]) -> None:
        """Run transactions and a plain write that conflict, which random rules rarely produce."""
        self.write_batch([Op("put", key, key) for key in (b"a", b"b", b"ba")], None)
        for each in (serializable, other):
            self.begin_transaction(each)
        count = len(self.transactions)
        for step in steps:
            place = count - 1 - step.place % 2
            match step.what:
                case "write":
                    self.write_in_transaction(place, step.op)
                case "get":
                    self.get_in_transaction(place, [step.op.key])
                case "scan":
                    self.scan_in_transaction(place, step.span, step.reverse, step.limit)
                case "mark" | "unmark":
                    self.mark(place, [step.op.key], step.what == "mark")
                case _:
                    self.write_one(step.op, False)
        for durable in (False, True):
            count -= 1
            self.end_transaction(count, durable, True)

    # Scans that stay open

    @precondition(lambda self: len(self.scans) < 3 and isinstance(self.adapter, SyncAdapter))
    @rule(span=SPANS, reverse=st.booleans())
    def begin_scan(self, span: Span, reverse: bool) -> None:
        scan = self.adapter.begin_scan(span, reverse=reverse, read_ahead_bytes=1)
        self.scans.append(OpenScan(scan, span, self.model.last_seq, reverse))

    @precondition(lambda self: self.scans)
    @rule(place=PLACES, count=st.integers(1, 3))
    def go_on_with_scan(self, place: int, count: int) -> None:
        open_one = self.scans[place % len(self.scans)]
        rows = open_one.scan.next_batch(count)
        open_one.rows += [(row.key, row.value) for row in rows]
        if len(rows) < count:
            self.scans.remove(open_one)
            self.model.check_scan(
                open_one.rows,
                ModelScan(open_one.span, open_one.reverse),
                open_one.seq,
                (0, self.harness.now_ms()),
                lenient=True,
            )

    @precondition(
        lambda self: len(self.snapshots) < 3 and len(self.scans) < 3 and isinstance(self.adapter, SyncAdapter)
    )
    @rule(
        ops=st.lists(OPS, min_size=3, max_size=8),
        more=st.lists(OPS, min_size=3, max_size=8),
        reverse=st.booleans(),
        replaced=st.booleans(),
    )
    def long_readers(self, ops: list[Op], more: list[Op], reverse: bool, replaced: bool) -> None:
        """Keep a snapshot and a scan open while everything below them is rewritten and collected."""
        self.write_and_flush(more, "memtable")
        self.take_snapshot(False)
        self.begin_scan(Span(), reverse)
        if self.scans[-1].seq:
            self.go_on_with_scan(len(self.scans) - 1, 1)
        self.write(ops, False)
        self.flush("wal")
        self.write_and_flush(more, "memtable")
        if replaced:
            self.write_and_flush(ops, "memtable")
            self.compaction()
            self.collection()
        self.read_snapshot(len(self.snapshots) - 1, Span(), reverse, None)
        self.close_snapshot(len(self.snapshots) - 1)
        if self.scans:
            self.go_on_with_scan(len(self.scans) - 1, 1000)

    # What happens to the database meanwhile

    @rule(kind=st.sampled_from(["wal", "memtable"]))
    def flush(self, kind: str) -> None:
        self.harness.run(lambda: self.db.flush(kind))
        assert self.db.status.durable_seq == self.model.last_seq

    @rule(seconds=st.sampled_from([0.01, 1.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.harness.pass_time(seconds)

    @rule()
    def compaction(self) -> None:
        self.harness.compact()

    @rule()
    def collection(self) -> None:
        self.harness.collect()

    @rule(kind=st.sampled_from(["wal", "memtable", "none"]))
    def close_and_reopen(self, kind: str) -> None:
        self.harness.run(lambda: self.db.close(kind))
        if kind != "none":
            self.model.durable_seq = self.model.last_seq
        self.harness.leave()
        self.come_back()

    @rule()
    def crash(self) -> None:
        self.harness.kill()
        self.come_back()

    def come_back(self) -> None:
        self.model.durable_seq = max(self.model.durable_seq, self.db.status.durable_seq)
        self.refusals = 0
        self.open()
        self.model.forget_after(self.db.status.last_seq)
        self.see_everything()

    def see_everything(self) -> None:
        before = self.harness.now_ms()
        rows = self.harness.run(self.everything)
        self.model.check_scan(rows, ModelScan(), self.model.last_seq, (before, self.harness.now_ms()))

    async def everything(self) -> list[tuple[bytes, bytes]]:
        return [(row.key, row.value) async for row in self.db.scan()]

    @invariant()
    def sequence_numbers_agree(self) -> None:
        if hasattr(self, "db"):
            assert self.db.status.last_seq == self.model.last_seq
            assert self.db.status.durable_seq <= self.db.status.last_seq
            assert self.db.status.problem is None

    @invariant()
    def everything_is_there(self) -> None:
        """Check all rows after every step in half of the runs, because a read may repair the state it reads."""
        if hasattr(self, "db") and self.looks:
            self.see_everything()

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.close()


def same_lifetimes(ops: list[Op]) -> list[Op]:
    """Give every write of one batch the same lifetime, because operands of a key must agree: none here."""
    return [op._replace(ttl_ms=None) if op.key in MERGED else op for op in ops]


def one_put() -> shale.WriteBatch:
    batch = shale.WriteBatch()
    batch.put(b"never", b"")
    return batch
