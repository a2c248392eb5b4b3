"""The rules find injected defects, each on an adapter that can reach the defect."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shale.api import ops_body
from shale.core.ttl import resolve_lifetime
from shale.engine.db import Db
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.active_seqs import ActiveSeqs
from shale.engine.scan.scan import Scan
from shale.engine.txn.own_writes import FrozenWrites, OwnWrites
from shale.engine.txn.transaction import Transaction
from shale.engine.write.batch import WriteBatch
from shale.engine.write.commit_history import CommitHistory, ConflictWindow
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.pipeline import WritePipeline
from shale.iter import merge_operator
from shale.sync import scan as sync_scan
from shale.types import KeyRange, excluded
from tests.model.rule_subsets import Outliving, Racing
from tests.model.state_machine import DatabaseMachine
from tests.model.test_adapters import QUICK, OnAsync, OnHttp, OnSync

EXAMPLES = 100

pytestmark = pytest.mark.soak
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    logging.getLogger("shale").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("shale").setLevel(logging.NOTSET)


def must_be_found(machine: type[DatabaseMachine]) -> None:
    search = settings(QUICK, max_examples=EXAMPLES, phases=[Phase.generate])
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an assertion, a simulation's error, or a group of them
        run_state_machine_as_test(machine, settings=search)
    assert not isinstance(caught.value, (KeyboardInterrupt, SystemExit))


MISTAKES: dict[str, tuple[type[DatabaseMachine], Callable[[Patch], None]]] = {}


def mistake(machine: type[DatabaseMachine]) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MISTAKES[make.__name__] = (machine, make)
        return make

    return add


@mistake(Racing)
def scanned_ranges_do_not_conflict(patch: Patch) -> None:
    patch.setattr(ConflictWindow, "wrote_in", lambda self, ranges: False)


@mistake(Racing)
def keys_that_were_read_do_not_conflict(patch: Patch) -> None:
    patch.setattr(Transaction, "_note_reads", lambda self, keys: None)


@mistake(Racing)
def unmarked_writes_conflict_with_later_ones(patch: Patch) -> None:
    patch.setattr(CommitHistory, "hide", lambda self, keys, seq: None)


@mistake(OnAsync)
def flushes_drop_what_snapshots_need(patch: Patch) -> None:
    patch.setattr(ActiveSeqs, "oldest", lambda self: None)


@mistake(OnAsync)
def a_memtable_shows_snapshots_its_newest_row(patch: Patch) -> None:
    get = Memtable.get
    patch.setattr(Memtable, "get", lambda self, key, max_seq=None: get(self, key))


@mistake(OnAsync)
def a_deletion_that_finds_no_row_is_forgotten(patch: Patch) -> None:
    delete = WritePipeline.delete

    async def forgetful(self: WritePipeline, key: Any) -> Any:
        return await delete(self, key if self.buffers.active.get(key) else b"never")

    patch.setattr(WritePipeline, "delete", forgetful)


@mistake(OnAsync)
def a_commit_is_called_durable_too_early(patch: Patch) -> None:
    advance_durable = DurabilityTracker.advance_durable
    patch.setattr(DurabilityTracker, "advance_durable", lambda self, seq: advance_durable(self, seq + 1))


@mistake(OnAsync)
def durable_reads_show_everything(patch: Patch) -> None:
    read_point = Db._read_point
    patch.setattr(Db, "_read_point", lambda self, durability: read_point(self, "memory"))


@mistake(OnAsync)
def operands_are_folded_in_the_wrong_order(patch: Patch) -> None:
    fold = merge_operator._Folder._try_fold

    def confused(self: Any, versions: Any, flags: int) -> Any:
        operands = [entry for entry in versions if entry.is_merge]
        turned = [entry._replace(value=other.value) for entry, other in zip(operands, operands[::-1], strict=True)]
        return fold(self, [*turned, *versions[len(operands) :]], flags)

    patch.setattr(merge_operator._Folder, "_try_fold", confused)


@mistake(OnAsync)
def a_merge_in_a_batch_forgets_the_put_before_it(patch: Patch) -> None:
    merge = WriteBatch.merge

    def forgetful(self: WriteBatch, key: Any, operand: Any, **options: Any) -> None:
        self._values.pop(key, None)
        merge(self, key, operand, **options)

    patch.setattr(WriteBatch, "merge", forgetful)


@mistake(OnAsync)
def lifetimes_are_off_by_one(patch: Patch) -> None:
    def longer(ttl: Any, expire_at: Any, default_ms: Any) -> Any:
        lifetime = resolve_lifetime(ttl, expire_at, default_ms)
        return lifetime + 1 if isinstance(lifetime, int) else lifetime

    patch.setattr("shale.engine.write.pipeline.resolve_lifetime", longer)


@mistake(Racing)
def scans_of_a_transaction_do_not_show_its_writes(patch: Patch) -> None:
    patch.setattr(FrozenWrites, "parts", lambda self, key_range=None: [])


@mistake(Racing)
def a_transaction_sees_only_the_first_of_its_writes(patch: Patch) -> None:
    patch.setattr(OwnWrites, "changed", lambda self: None)


@mistake(OnAsync)
def a_user_s_sequence_number_is_not_compared(patch: Patch) -> None:
    patch.setattr(WritePipeline, "_next_seq", lambda self, wanted: self.last_seq + 1 if wanted is None else wanted)


@mistake(Racing)
def a_scan_that_reached_its_limit_counts_as_a_whole(patch: Patch) -> None:
    patch.setattr(Scan, "read_range", property(lambda self: self._plan.key_range))


@mistake(Racing)
def a_scan_that_reached_its_limit_does_not_count_to_its_end(patch: Patch) -> None:
    whole = Scan.read_range.fget
    assert whole is not None

    def shorter(self: Scan) -> KeyRange:
        read: KeyRange = whole(self)
        if read == self._plan.key_range:
            return read
        if self._plan.backward:
            return KeyRange(excluded(read.start.key or b""), read.end)
        return KeyRange(read.start, excluded(read.end.key or b""))

    patch.setattr(Scan, "read_range", property(shorter))


@mistake(Outliving)
def a_scan_begins_anew_when_an_sst_is_gone(patch: Patch) -> None:
    go_on = Scan._go_on_elsewhere

    async def begin_anew(self: Scan, gone: Any) -> None:
        await go_on(self, gone)
        self._rest = self._plan.key_range

    patch.setattr(Scan, "_go_on_elsewhere", begin_anew)


@mistake(OnSync)
def a_blocking_scan_loses_a_row_between_two_trips(patch: Patch) -> None:
    remember = sync_scan.Scan._remember
    patch.setattr(sync_scan.Scan, "_remember", lambda self, rows: remember(self, rows[:-1] if len(rows) > 3 else rows))


@mistake(OnHttp)
def a_batch_over_http_loses_lifetimes(patch: Patch) -> None:
    patch.setattr(ops_body, "expiry_from_body", lambda value, name: ops_body.DEFAULT_EXPIRY)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: Patch) -> None:
    machine, make = MISTAKES[name]
    make(monkeypatch)
    must_be_found(machine)
