"""Rows with a lifetime: what must be there, what must be gone, and what may not come back."""

from typing import Any

import pytest

from tests.soak.checker.verdict import check_partition
from tests.soak.checker.views import Tenures
from tests.soak.clients.final import differences
from tests.soak.history.operation import Function, Outcome
from tests.unit.soak.histories import ALONE, Recorder, kinds

KEY = "expiring/7/1"


class History(Recorder):
    """A row without a lifetime at 0 s, and one over it at 10 s that expires at 30 s."""

    def __init__(self, *, second: list[Any] | None = None, outcome: Outcome = "ok") -> None:
        super().__init__()
        self.add("a", "write", "below", 0, 1, key=KEY)
        self.add("a", "write_until", second or ["above", "until", 30], 10, 11, key=KEY, outcome=outcome)

    def read(self, value: str | None, at: float, function: Function = "read", **more: Any) -> "History":
        self.add("r", function, value, at, at + 0.5, key=KEY, **more)
        return self

    def found(self, *, skew_s: float = 0.0, tenures: Tenures = ALONE) -> set[str]:
        return kinds(check_partition(KEY, self.operations, tenures, skew_s=skew_s))


def test_a_row_is_there_until_it_expires_and_then_absent() -> None:
    history = History()
    for at, value in ((2, "below"), (12, "above"), (28, "above"), (40, None), (60, None)):
        history.read(value, at).read(value, at + 0.6, "read_live")
    assert history.found() == set()


def test_an_expired_row_may_be_shown_until_it_is_removed_unless_the_read_hides_it() -> None:
    assert History().read("above", 50).read(None, 60).found() == set()
    assert History().read("above", 50, "read_live").found() == {"expired row visible"}
    assert History().read("above", 50, "read_live").found(skew_s=25) == set()
    assert History().read("above", 50, "read_live", interface="reader").found() == {"expired row visible"}


def test_a_row_that_has_not_expired_is_not_absent() -> None:
    assert History().read(None, 20).found() == {"lost update"}
    assert History().read(None, 20, "read_live").found() == {"lost update"}
    assert History().read(None, 20).found(skew_s=15) == set()
    assert History().read(None, 20, interface="reader").found() == set()
    assert History().read("above", 15, interface="reader").read(None, 20, interface="reader").found() == {
        "session went back"
    }


def test_an_expired_row_does_not_come_back() -> None:
    assert History().read(None, 40).read("above", 50).found() == {"expired row came back"}
    reader = {"interface": "reader", "served_by": "reader-a"}
    seen = History().read("above", 20, **reader).read(None, 40, **reader)
    assert seen.read("above", 50, **reader).found() == {"expired row came back"}
    other = History().read("above", 20, **reader).read(None, 40, **reader)
    assert other.read("above", 50, interface="reader", served_by="reader-b").found() == set()


@pytest.mark.parametrize("interface", ["http", "reader"])
def test_the_row_below_does_not_come_back(interface: str) -> None:
    history = History().read("above", 20, interface=interface).read("below", 50, interface=interface)
    assert "session went back" in history.found()
    expected = {"older row came back"} if interface == "http" else set()
    assert History().read("below", 50, interface=interface).found() == expected
    replaced = Tenures({"writer-1": 45})
    assert History().read("below", 50, interface=interface).found(tenures=replaced) == set()


def test_a_duration_begins_at_an_unknown_time_of_the_write() -> None:
    history = History(second=["above", "for", 20]).read("above", 28).read("above", 31, "read_live").read(None, 33)
    assert history.found() == set()
    late = History(second=["above", "for", 20]).read("above", 50, "read_live")
    assert late.found() == {"expired row visible"}
    # The writer's clock may be wrong, and that of the process that answers.
    assert late.found(skew_s=8) == {"expired row visible"}
    assert late.found(skew_s=10) == set()


def test_a_write_whose_outcome_is_unknown_may_have_happened_and_expired() -> None:
    assert History(outcome="unknown").read(None, 40).found() == set()
    assert History(outcome="unknown").read("below", 40).read("above", 41).found() == set()
    assert History(outcome="unknown").read(None, 20).found() == {"lost update"}
    assert History(outcome="fail").read(None, 40).found() == {"lost update"}
    assert History(outcome="fail").read("above", 20).found() == {"failed write visible"}
    assert History().read("other", 20).found() == {"unwritten value"}
    assert History().read("above", 5).found() == {"read from the future"}


def test_readers_may_differ_in_what_has_expired_but_not_in_its_value() -> None:
    writer = {KEY: b"above", "once/1": b"1"}
    assert differences(writer, {"once/1": b"1"}) == []
    assert differences({"once/1": b"1"}, writer) == []
    assert len(differences(writer, {**writer, KEY: b"below"})) == 1
    assert len(differences(writer, {KEY: b"above"})) == 1
