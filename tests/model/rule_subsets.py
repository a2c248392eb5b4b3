"""Subsets of the rules: operations that are rare among all rules run in every step."""

import inspect
from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from shale.testing.model import Op, Span
from tests.model.state_machine import OPS, RACED, SPANS, DatabaseMachine
from tests.model.test_adapters import OnAsync, OnSync

_IS_RULE = "hypothesis_stateful_rule"
_CHECKPOINTS_EXPIRE_S = 1_000.0
"""Longer than a compactor keeps what it has replaced."""


def without_rules(machine: type[DatabaseMachine], *, but: set[str]) -> type[DatabaseMachine]:
    """Return a machine with these rules only; the other methods stay callable."""
    methods = inspect.getmembers(machine, inspect.isfunction)
    plain = {name: _plain(method) for name, method in methods if hasattr(method, _IS_RULE) and name not in but}
    return type(f"Focused{machine.__name__}", (machine,), plain)


def _plain(method: Any) -> Any:
    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        return method(*args, **options)

    delattr(call, _IS_RULE)
    return call


class _Outliving(OnSync):
    """Scans of many blocks that are replaced and collected during the scan, without a cache."""

    more_settings: ClassVar[Mapping[str, Any]] = {"block_cache_bytes": 0}

    @rule(
        count=st.integers(2, 20),
        given=st.integers(1, 8),
        reverse=st.booleans(),
        step=st.sampled_from([1, 3]),
        at_once=st.integers(1, 30),
    )
    def a_scan_outlives_what_it_reads(self, count: int, given: int, reverse: bool, step: int, at_once: int) -> None:
        keys = [b"r%02d" % number for number in range(count)]
        self.write([Op("put", key, b"x" * 40) for key in keys], False)
        self.flush("memtable")
        self.begin_scan(Span(), reverse)
        self.go_on_with_scan(len(self.scans) - 1, given)
        self.write([Op("put", key, b"y") for key in keys[::step]], False)
        self.flush("memtable")
        self.compaction()
        self.time_passes(_CHECKPOINTS_EXPIRE_S)
        self.collection()
        while self.scans:
            self.go_on_with_scan(len(self.scans) - 1, at_once)


class _Racing(OnAsync):
    @precondition(lambda self: len(self.transactions) < 3)
    @rule(ops=st.lists(OPS, min_size=2, max_size=5), span=SPANS, reverse=st.booleans(), serializable=st.booleans())
    def a_transaction_sees_each_of_its_writes(
        self, ops: list[Op], span: Span, reverse: bool, serializable: bool
    ) -> None:
        place = len(self.transactions)
        self.begin_transaction(serializable)
        for op in ops:
            self.write_in_transaction(place, op)
            self.get_in_transaction(place, [op.key])
            self.scan_in_transaction(place, span, reverse, None)
        self.end_transaction(place, False, True)

    @precondition(lambda self: len(self.transactions) < 2)
    @rule(key=RACED, other=RACED, deletes=st.booleans())
    def an_unmarked_write_conflicts_with_nobody(self, key: bytes, other: bytes, deletes: bool) -> None:
        first = len(self.transactions)
        self.begin_transaction(True)
        self.begin_transaction(False)
        self.get_in_transaction(first, [key])
        self.write_in_transaction(first + 1, Op("delete" if deletes else "put", other))
        self.mark(first + 1, [key], False)
        self.end_transaction(first + 1, False, True)
        self.end_transaction(first, False, True)


Racing = without_rules(
    _Racing,
    but={
        "race",
        "flush",
        "write_and_flush",
        "a_transaction_sees_each_of_its_writes",
        "an_unmarked_write_conflicts_with_nobody",
    },
)
"""Transactions that get in each other's way, and the flushes that decide where their conflicts are looked for."""
Outliving = without_rules(_Outliving, but={"a_scan_outlives_what_it_reads"})
