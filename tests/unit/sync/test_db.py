"""Blocking handles do what the asynchronous ones do; the state machine of tests/model compares them at length."""

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import anyio
import pytest

import shale
from shale import codecs, sync
from shale.core.bytes_like import BytesLike
from shale.errors import ClosedError, InvalidRequestError, MergeOperatorFailed, TransactionConflict
from shale.store.memory import MemoryStore
from shale.store.port import OVERWRITE, ETag, PutMode
from shale.sync import loop_thread


class HeldStore(MemoryStore):
    """Puts to the WAL wait while ``held``."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.waiting = threading.Event()

    async def put(
        self, key: str, data: BytesLike, *, mode: PutMode = OVERWRITE, attributes: object = None
    ) -> ETag | None:
        while self.held and "/wal/" in key:
            self.waiting.set()
            await anyio.sleep(0.001)
        return await super().put(key, data, mode=mode)


@pytest.fixture
def store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def db(store: HeldStore) -> Iterator[sync.Db]:
    with sync.Db.open("db", store=store) as opened:
        yield opened


def test_what_was_written_is_read_and_survives_a_reopen(store: HeldStore) -> None:
    with sync.Db.open("db", store=store, merge_operator="concatenate") as db:
        handle = db.put(b"a", b"1", ttl="1h")
        handle.durable()
        assert db.status.durable_seq >= handle.seq == db.status.last_seq
        db.delete(b"b")
        db.merge(b"c", b"x")
        with db.batch() as batch:
            batch.put(b"d", b"4")
            batch.merge(b"c", b"y")
        row = db.get_row(b"a")
        assert row is not None
        assert (row.value, row.seq, row.expire_ts) == (b"1", handle.seq, handle.create_ts + 3_600_000)
    with sync.DbReader.open("db", store=store, merge_operator="concatenate") as reader:
        assert reader.get_many([b"c", b"b", b"a"]) == [b"xy", None, b"1"]
        assert [row.key for row in reader.scan(reverse=True)] == [b"d", b"c", b"a"]


def test_a_snapshot_stays_while_rows_change(db: sync.Db) -> None:
    db.put(b"k", b"old")
    with db.snapshot() as snapshot:
        db.put(b"k", b"new")
        assert (snapshot.get(b"k"), db.get(b"k")) == (b"old", b"new")
    with pytest.raises(ClosedError):
        snapshot.get(b"k")


def test_a_transaction_commits_or_conflicts_or_rolls_back(db: sync.Db) -> None:
    with db.transaction() as tx:
        tx.put(b"k", b"1")
        assert (tx.get(b"k"), db.get(b"k")) == (b"1", None)
    assert db.get(b"k") == b"1"
    with pytest.raises(TransactionConflict), db.transaction("serializable") as tx:  # noqa: PT012 - the exit raises
        assert tx.get(b"k") == b"1"
        db.put(b"k", b"2")
        tx.put(b"other", b"")
    with pytest.raises(LookupError), db.transaction() as tx:  # noqa: PT012 - the exit decides
        tx.put(b"k", b"3")
        raise LookupError
    assert (db.get(b"k"), db.get(b"other")) == (b"2", None)


@pytest.mark.filterwarnings("error")
def test_it_works_beside_a_running_loop(db: sync.Db) -> None:
    """As in a notebook: the caller has an event loop, and the calls run in another one."""

    async def inside() -> list[bytes | None]:
        db.put(b"k", b"v").durable()
        with db.transaction() as tx:
            tx.put(b"t", b"1")
        with sync.Db.open("other", store=MemoryStore()) as other:
            other.put(b"k", b"w")
            return [db.get(b"k"), *[row.value for row in db.scan(prefix=b"t")], other.get(b"k")]

    assert asyncio.run(inside(), debug=True) == [b"v", b"1", b"w"]


def test_code_in_its_own_loop_is_refused_instead_of_waiting_for_itself() -> None:
    store = MemoryStore()

    def operator(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        db.get(key)
        return operands[-1]

    db = sync.Db.open("db", store=store, merge_operator=operator)
    with pytest.raises(MergeOperatorFailed, match="raised InvalidRequestError"):
        db.merge(b"k", b"1")
    db.close()


def test_a_transaction_can_be_used_as_a_mapping(db: sync.Db) -> None:
    with db.transaction() as tx:
        names = tx.mapping(codec=codecs.TEXT, prefix=b"n/")
        names[b"a"] = "Ada"
        names.update({b"b": "Bob", b"c": "Cy"})
        del names[b"b"]
        assert dict(names) == {b"a": "Ada", b"c": "Cy"}
        assert db.get(b"n/a") is None
    assert db.mapping(codec=codecs.TEXT, prefix=b"n/")[b"a"] == "Ada"
    with db.transaction() as tx:
        tx.mapping(codec=codecs.TEXT, prefix=b"n/").clear()
    assert not db.mapping(codec=codecs.TEXT, prefix=b"n/")


def test_writes_of_transactions_and_batches_return_nothing(db: sync.Db) -> None:
    with db.transaction() as tx:
        assert [tx.put(b"a", b""), tx.delete(b"b"), tx.write(tx.new_batch())] == [None] * 3  # type: ignore[func-returns-value]


def test_items_and_bounded_batches_go_on_after_rows_that_were_fetched_ahead(db: sync.Db) -> None:
    with db.batch() as batch:
        for number in range(300):
            batch.put(b"%03d" % number, b"v")
    scan = db.scan()
    assert next(scan).key == b"000"
    assert [row.key for row in scan.next_batch(9, bytes_max=8)] == [b"001", b"002"]
    lists = list(scan.items(100))
    assert [len(each) for each in lists] == [100, 100, 97]
    assert [key for each in lists for key, _ in each] == [b"%03d" % number for number in range(3, 300)]
    assert scan.read_range.contains(b"299")


def test_a_reader_has_snapshots(db: sync.Db) -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store) as writer:
        writer.put(b"k", b"1").durable()
        with sync.DbReader.open("db", store=store) as reader, reader.snapshot() as kept:
            writer.put(b"k", b"2").durable()
            reader.refresh()
            assert (kept.get(b"k"), reader.get(b"k")) == (b"1", b"2")


def test_errors_arrive_as_themselves_without_the_machinery(db: sync.Db) -> None:
    with pytest.raises(InvalidRequestError, match="key of 0 bytes") as caught:
        db.put(b"", b"")
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    files = {entry.path.parts[-2] for entry in caught.traceback}
    assert files == {"concurrency", "sync", "write"}


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_fetch_ahead_and_seek_like_the_asynchronous_one(db: sync.Db, reverse: bool) -> None:
    with db.batch() as batch:
        for number in range(0, 1000, 2):
            batch.put(b"%03d" % number, b"v")
    order = sorted((b"%03d" % number for number in range(0, 1000, 2)), reverse=reverse)
    scan = db.scan(reverse=reverse)
    assert [next(scan).key for _ in range(3)] == order[:3]
    scan.seek(order[10])  # among what was fetched
    assert next(scan).key == order[10]
    with pytest.raises(InvalidRequestError, match="not after the last row"):
        scan.seek(order[10])
    scan.seek(order[300])  # after it
    assert [row.key for row in scan.next_batch(2)] == order[300:302]
    assert [[row.key for row in rows] for rows in scan.batches(150)] == [order[302:452], order[452:]]


def test_a_seek_outside_of_the_range_is_refused_and_the_scan_goes_on(db: sync.Db) -> None:
    with db.batch() as batch:
        for key in (b"a", b"b", b"c"):
            batch.put(key, b"")
    scan = db.scan(start=b"b")
    for key in (b"a", b"0"):
        with pytest.raises(InvalidRequestError, match="outside the range"):
            scan.seek(key)
    assert [row.key for row in scan] == [b"b", b"c"]


def test_the_rest_of_a_scan_can_be_had_as_arrow(db: sync.Db) -> None:
    with db.batch() as batch:
        for number in range(10):
            batch.put(b"%d" % number, b"v", ttl=None if number % 2 else "1h")
    scan = db.scan()
    assert next(scan).key == b"0"
    table = scan.to_arrow()
    assert table.column("key").to_pylist() == [b"%d" % number for number in range(1, 10)]
    assert table.column("expire_ts").null_count == 5


def test_threads_share_a_handle(db: sync.Db) -> None:
    def work(name: bytes) -> None:
        for number in range(50):
            db.put(b"%b%02d" % (name, number), name)

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db.status.last_seq == 150
    assert len(list(db.scan())) == 150


def interrupt_when(waiting: threading.Event) -> threading.Thread:
    def send() -> None:
        assert waiting.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_ctrl_c_while_waiting_leaves_a_whole_commit_and_a_working_handle(db: sync.Db, store: HeldStore) -> None:
    store.held = True
    sender = interrupt_when(store.waiting)
    with pytest.raises(KeyboardInterrupt):
        db.put(b"k", b"v").durable()
    sender.join()
    store.held = False
    assert db.get(b"k") == b"v"
    db.flush()
    assert db.status.durable_seq == db.status.last_seq == 1


def test_ctrl_c_while_opening_leaves_nothing_open(store: HeldStore) -> None:
    store.held = True
    sender = interrupt_when(store.waiting)
    with pytest.raises(KeyboardInterrupt):
        sync.Db.open("db", store=store)
    sender.join()
    store.held = False
    with sync.Db.open("db", store=store) as db:
        db.put(b"k", b"v").durable()
        assert db.status.problem is None


def test_commits_are_whole_or_absent_whenever_ctrl_c_comes(db: sync.Db) -> None:
    """Batches of two rows, interrupted at many places; each is there with both rows or with none."""
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.002):
            os.kill(os.getpid(), signal.SIGINT)

    count = 0
    disturber = threading.Thread(target=disturb)
    interrupted = 0
    armed = False

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal armed
        if armed:  # once, so that nothing but the loop of writes is interrupted
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        disturber.start()
        while interrupted < 30 and count < 20_000:
            try:
                armed = True
                for _ in range(20_000):
                    count += 1
                    batch = shale.WriteBatch()
                    batch.put(b"a/%06d" % count, b"")
                    batch.put(b"b/%06d" % count, b"")
                    db.write(batch)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        armed = False
        stop.set()
        disturber.join()
        signal.signal(signal.SIGINT, before)
    left = [row.key[2:] for row in db.scan(prefix=b"a/")]
    right = [row.key[2:] for row in db.scan(prefix=b"b/")]
    assert left == right
    assert interrupted == 30
    assert db.status.problem is None


class InterruptedLock:
    """A lock of one call: the signal comes when the caller has acquired it, before the next line."""

    acquired = 0

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self.release = self._inner.release

    def acquire(self, timeout: float = -1) -> bool:
        type(self).acquired += 1
        is_acquired = self._inner.acquire(timeout=timeout)
        if self.acquired == 2:
            raise KeyboardInterrupt
        return is_acquired


def test_ctrl_c_after_the_end_of_a_call_waits_for_nothing(db: sync.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = shale.WriteBatch()
    batch.put(b"k", b"v")
    with monkeypatch.context() as patch:
        patch.setattr(loop_thread, "threading", SimpleNamespace(**vars(threading) | {"Lock": InterruptedLock}))
        with pytest.raises(KeyboardInterrupt):
            db.write(batch)
    assert InterruptedLock.acquired == 2, "locked, and waited for once"
    assert db.get(b"k") == b"v"


def test_threads_that_have_ended_are_forgotten(db: sync.Db) -> None:
    threads = []
    for _ in range(50):
        thread = threading.Thread(target=db.get, args=(b"k",))
        thread.start()
        thread.join()
        threads.append(weakref.ref(thread))
        del thread
    gc.collect()
    assert sum(reference() is not None for reference in threads) <= 1


def test_a_clone_is_made() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store) as db:
        db.put(b"a", b"1")
    with sync.Admin("copy", store=store) as admin:
        assert admin.clones.create("db").is_new
        assert not admin.clones.create("db").is_new
    with sync.DbReader.open("copy", store=store) as reader:
        assert reader.get(b"a") == b"1"


def test_the_status_is_followed_until_the_close() -> None:
    db = sync.Db.open("db", store=MemoryStore(), flush_interval=0)
    updates = db.status.subscribe()
    assert next(updates).durable_seq == 0
    db.put(b"a", b"v").durable()
    assert next(update for update in updates if update.durable_seq == 1).problem is None
    with ThreadPoolExecutor(1) as threads:
        rest = threads.submit(list, updates)
        db.close()
        assert isinstance(rest.result(timeout=30)[-1].problem, ClosedError)


def test_a_reader_tells_what_it_shows() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store, flush_interval=0) as db:
        with sync.DbReader.open("db", store=store, manifest_poll_interval="1h", follow_latest=True) as reader:
            updates = reader.subscribe()
            assert next(updates).durable_seq == 0
            db.put(b"a", b"v").durable()
            reader.refresh()
            assert next(updates).durable_seq == 1
        assert isinstance(next(updates).problem, ClosedError)
        assert list(updates) == []
