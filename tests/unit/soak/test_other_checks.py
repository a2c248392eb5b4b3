"""Sessions, counters, states of scans, the change feed, and the whole of a history in files."""

import json
from pathlib import Path

import pytest

from shale.merge_operators import concatenate
from tests.soak.checker.change_feed import Change, check_key, check_order
from tests.soak.checker.counters import check_counter
from tests.soak.checker.sessions import check_sessions
from tests.soak.checker.states import check_states
from tests.soak.checker.verdict import check_history, check_partition
from tests.soak.checker.views import Tenures, views_of
from tests.soak.history import journal
from tests.soak.history.operation import FINAL
from tests.soak.history.values import elements_in, joined, name_in, padded
from tests.unit.soak.histories import ALONE, Recorder, kinds


def session_kinds(history: Recorder) -> set[str]:
    writes = [each for each in history.operations if each.function != "read"]
    return kinds(check_sessions("register/k", writes, [each for each in history.operations if each.function == "read"]))


def two_writes() -> Recorder:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("a", "write", "2", 2, 3)
    return history


def test_a_reader_may_be_old() -> None:
    history = two_writes()
    for time, value in ((4, None), (5, "1"), (6, "1"), (7, "2")):
        history.add("r", "read", value, time, time + 0.5, interface="reader")
    assert session_kinds(history) == set()


def test_a_session_that_goes_back_is_an_anomaly() -> None:
    history = two_writes()
    for time, value in ((4, "2"), (5, "1")):
        history.add("r", "read", value, time, time + 0.5, interface="reader")
    assert session_kinds(history) == {"session went back"}


def test_another_reader_may_be_older() -> None:
    history = two_writes()
    for time, value in ((4, "2"), (5, "1")):
        history.add("r", "read", value, time, time + 0.5, interface="reader", served_by=f"reader-{value}")
    assert session_kinds(history) == set()


def test_a_row_that_a_session_saw_does_not_vanish() -> None:
    history = two_writes()
    for time, value in ((4, "2"), (5, None)):
        history.add("r", "read", value, time, time + 0.5, interface="reader")
    assert session_kinds(history) == {"session went back"}


def test_a_value_is_not_read_before_it_is_written() -> None:
    history = two_writes()
    history.add("r", "read", "2", 0.5, 1.5, interface="reader")
    assert session_kinds(history) == {"read from the future"}


def test_reads_of_a_replaced_writer_need_not_be_linearizable() -> None:
    history = two_writes()
    history.add("b", "write", "3", 5, 6, served_by="writer-2")
    history.add("c", "read", "2", 7, 8)
    tenures = Tenures.of(history.operations)
    views = views_of(history.operations, tenures)
    assert [each.name for each in views.monotonic] == ["c#3"]
    assert tenures.replaced_at["writer-1"] == 5


def test_a_dirty_read_of_a_row_that_a_crash_undid_proves_nothing() -> None:
    history = two_writes()
    history.add("a", "write", "3", 4, 5, outcome="unknown")
    history.add("b", "read", "3", 4.5, 4.8, is_dirty=True)
    history.add("b", "read", "2", 6, 7)
    views = views_of(history.operations, ALONE)
    assert [each.name for each in views.durable] == ["a#0", "a#1", "a#2", "b#4"]
    assert [each.name for each in views.dirty] == ["a#0", "a#1", "a#2"]


def test_dirty_reads_are_ahead_of_durable_ones() -> None:
    history = two_writes()
    history.add("a", "write", "3", 4, 9)
    history.add("b", "read", "3", 5, 6, is_dirty=True)
    history.add("c", "read", "2", 7, 8)
    assert kinds(check_partition("register/k", history.operations, ALONE)) == set()
    history.add("d", "read", "2", 7, 8, is_dirty=True)
    assert kinds(check_partition("register/k", history.operations, ALONE)) == {"not linearizable"}


def counter(*operations: tuple[str, int | None, float, float]) -> set[str]:
    history = Recorder()
    for function, value, start, end in operations:
        outcome = "unknown" if value is None else "ok"
        history.add("a", "add" if function == "add" else "read", value, start, end, key="counter/c", outcome=outcome)
    return kinds(check_counter("counter/c", history.operations, ALONE))


def test_counters_count() -> None:
    assert counter(("add", 1, 0, 1), ("add", None, 2, 3), ("add", 3, 4, 5), ("read", 3, 6, 7)) == set()
    assert counter(("add", 1, 0, 1), ("add", 1, 2, 3)) == {"lost update"}
    assert counter(("add", 1, 0, 1), ("add", 3, 2, 3)) == {"counted twice"}
    assert counter(("add", 2, 0, 1), ("add", 1, 2, 3)) >= {"counter went back"}
    assert counter(("add", 1, 0, 1), ("read", 0, 2, 3)) == {"lost update"}
    assert counter(("add", 1, 0, 1), ("read", 2, 2, 3)) == {"counted twice"}


def states(*scans: dict[str, str], interface: str = "http") -> set[str]:
    history = Recorder()
    for number, name in enumerate(("1", "2", "3")):
        outcome = "fail" if name == "3" else "ok"
        history.add("a", "batch", name, number, number + 0.5, key="group/g/", outcome=outcome)
    for number, rows in enumerate(scans, 10):
        history.add("b", "scan", rows, number, number + 0.5, key="group/g/", interface=interface)
    return kinds(check_states("group/g", history.operations, ALONE))


def test_a_scan_shows_one_state() -> None:
    assert states({"a": "2", "b": "2"}, {"a": "2", "b": "2"}) == set()
    assert states({"a": "1", "b": "1"}, {"a": "2", "b": "2"}, interface="reader") == set()
    assert states({"a": "1", "b": "2"}) == {"torn state"}
    assert states({"a": "2", "b": "2"}, {"a": "2"}) == {"torn state"}
    assert states({"a": "1", "b": "1"}) == {"lost update"}
    assert states({"a": "3", "b": "3"}) == {"failed write visible"}
    assert states({"a": "2", "b": "2"}, {"a": "1", "b": "1"}, interface="reader") == {"session went back"}
    assert states({"a": "2", "b": "2"}, {}, interface="reader") == {"session went back"}
    assert states({}) == {"lost update"}


def test_the_feed_has_each_commit_once_and_in_order() -> None:
    rows = [Change(1, "a", "1"), Change(2, "a", "2"), Change(2, "b", "2")]
    assert kinds(check_order(rows)) == set()
    assert kinds(check_order([*rows, Change(1, "a", "1")])) == {"feed out of order"}
    assert kinds(check_order([*rows, Change(2, "b", "2")])) == {"duplicate in the feed"}


def feed_kinds(*rows: tuple[int, str | None], final: str | None = "2") -> set[str]:
    history = two_writes()
    history.add("a", "write", "3", 4, 5, outcome="fail")
    found = [Change(seq, "register/k", value) for seq, value in rows]
    return kinds(check_key("register/k", history.operations, found, last_seq=9, final=final))


def test_the_feed_of_a_key_has_what_was_acknowledged() -> None:
    assert feed_kinds((1, "1"), (2, "2")) == set()
    assert feed_kinds((2, "2")) == {"missing in the feed"}
    assert feed_kinds((1, "2"), (2, "1"), final="1") == {"feed out of order"}
    assert feed_kinds((1, "1"), (2, "2"), (3, "2")) == {"duplicate in the feed"}
    assert feed_kinds((1, "1"), (2, "2"), (3, "3"), final="3") == {"failed write in the feed"}
    assert feed_kinds((1, "1"), (2, "2"), final="1") == {"feed differs from the database"}


def test_a_whole_history_in_files(tmp_path: Path) -> None:
    history = two_writes()
    history.add("a", "txn", [["r", "x", []], ["append", "x", "1"]], 0, 1, key="list/7/")
    history.add("b", "add", 1, 0, 1, key="counter/1")
    history.add("b", "batch", "1", 0, 1, key="group/7/")
    history.add("r", "scan", {"p": "1", "q": "1"}, 2, 3, key="group/7/", interface="reader")
    history.add(FINAL, "read", "2", 8, 9)
    lines = journal.Journal(tmp_path, "clients")
    for operation in history.operations:
        lines.add(operation)
    lines.close()
    feed = tmp_path / "consumer.feed.jsonl"
    feed.write_text(json.dumps({"rows": [[1, "register/k", "1"], [2, "register/k", "2"]]}) + "\n")
    said: list[str] = []
    findings = check_history(tmp_path, tmp_path / "parts", feed=feed, say=said.append)
    assert kinds(findings) == set()
    assert findings.counts["transactions"] == findings.counts["additions"] == 1
    feed.write_text(json.dumps({"rows": [[2, "register/k", "2"]]}) + "\n")
    findings = check_history(tmp_path, tmp_path / "parts", feed=feed, say=said.append)
    assert kinds(findings) == {"missing in the feed"}


def test_a_line_that_breaks_off_is_no_operation(tmp_path: Path) -> None:
    lines = journal.Journal(tmp_path, "clients")
    lines.add(two_writes().operations[0])
    lines.close()
    with (tmp_path / "clients.ops.jsonl").open("a") as file:
        file.write('["a", 1, "http"')
    assert [each.name for each in journal.operations(tmp_path)] == ["a#0"]


def test_a_damaged_value_is_no_value() -> None:
    value = padded("a/1", 100)
    assert (len(value), name_in(value)) == (100, "a/1")
    with pytest.raises(ValueError, match="a/1 is damaged"):
        name_in(value[:-1] + b"!")


def test_a_merge_operand_appends_to_a_list_that_was_written_or_merged() -> None:
    written = joined(["a/1", "b/2"])
    assert elements_in(written) == ["a/1", "b/2"]
    assert elements_in(concatenate(b"k", written, [joined(["c/3"])])) == ["a/1", "b/2", "c/3"]
    assert elements_in(concatenate(b"k", None, [joined(["c/3"]), joined(["d/4"])])) == ["c/3", "d/4"]
    assert elements_in(joined([])) == elements_in(None) == []
