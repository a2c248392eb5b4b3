"""Concurrent attempts at a range produce one chain of SSTs without a gap, an overlap or a repetition."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shale.errors import CorruptionError
from shale.types import Sst
from shale_spark.compaction.range_output import RangeOutput
from tests.examples import examples
from tests.unit.compactor.values import sst, ulid

ROWS = 12


@dataclass
class Attempt:
    """An attempt that believes that it owns the range: rows up to ``position`` are in SSTs it knows of."""

    number: int
    count: int
    last: Sst | None

    @property
    def position(self) -> int:
        return 0 if self.last is None else int(self.last.info.last_entry or b"-1") + 1


class Attempts(RuleBasedStateMachine):
    """Attempts begin late, report late, die and are replaced; rows are numbers, an SST holds a few of them."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = RangeOutput()
        self.launched = 0
        self.silent: list[int] = []
        self.working: list[Attempt] = []
        self.made = 0

    @rule()
    def launch(self) -> None:
        self.silent.append(self.launched)
        self.launched += 1

    @precondition(lambda self: self.silent)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        number = self.silent.pop(data.draw(st.integers(0, len(self.silent) - 1)))
        owner = self.chain.owner
        accepted = self.chain.claim(number)
        assert accepted == (not self.chain.is_done and (owner is None or number > owner))
        if accepted:
            self.working.append(Attempt(number, len(self.chain.ssts), self.chain.last))

    @precondition(lambda self: self.working)
    @rule(data=st.data(), rows=st.integers(1, 5))
    def report(self, data: st.DataObject, rows: int) -> None:
        attempt = data.draw(st.sampled_from(self.working))
        start = attempt.position
        if start == ROWS:
            return
        end = min(ROWS, start + rows)
        self.made += 1
        made = sst(self.made, keys=(b"%03d" % start, b"%03d" % (end - 1)))
        owned = self.chain.owner == attempt.number
        assert self.chain.add(attempt.number, attempt.count, [made]) == owned
        if owned:
            attempt.count, attempt.last = attempt.count + 1, made
        else:
            self.working.remove(attempt)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.working))
        if attempt.position == ROWS:
            owned = self.chain.owner == attempt.number
            last = None if attempt.last is None else attempt.last.id
            assert self.chain.finish(attempt.number, attempt.count, last) == owned
            self.working.remove(attempt)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.working))
        self.working.remove(attempt)
        self.chain.release(attempt.number)

    @invariant()
    def is_one_chain(self) -> None:
        position = 0
        for each in self.chain.ssts:
            assert int(each.info.first_entry or b"-1") == position
            position = int(each.info.last_entry or b"-1") + 1
        assert not self.chain.is_done or position == ROWS

    @invariant()
    def a_range_has_a_live_owner_or_none(self) -> None:
        """An owner is a live attempt: a range without one is free for the next."""
        assert self.chain.owner is None or self.chain.owner in {attempt.number for attempt in self.working}


Attempts.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
test_attempts = Attempts.TestCase


def test_an_owner_that_lost_count_is_an_error() -> None:
    """Its SSTs would leave a gap or repeat rows."""
    chain = RangeOutput()
    chain.claim(1)
    with pytest.raises(CorruptionError, match="after 0 others"):
        chain.add(1, 1, [sst(1)])


def test_keys_must_ascend() -> None:
    """A run with overlapping SSTs would hide rows."""
    chain = RangeOutput(ssts=[sst(1, keys=(b"a", b"m"))])
    chain.claim(1)
    with pytest.raises(CorruptionError, match="begins before"):
        chain.add(1, 1, [sst(2, keys=(b"l", b"z"))])


def test_a_result_counts_only_if_it_is_the_recorded_chain() -> None:
    """No other SST was persisted."""
    chain = RangeOutput()
    chain.claim(1)
    assert chain.add(1, 0, [sst(1)])
    with pytest.raises(CorruptionError, match="recorded"):
        chain.finish(1, 1, ulid(2))
    assert chain.finish(1, 1, ulid(1))
    assert chain.is_done
    assert not chain.claim(2)
