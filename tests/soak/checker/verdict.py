"""Judges a whole history, one part of the keys after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.soak.checker import change_feed
from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.change_feed import Change
from tests.soak.checker.counters import check_counter
from tests.soak.checker.expiry import check_expiry
from tests.soak.checker.lists import check_lists
from tests.soak.checker.registers import check_register
from tests.soak.checker.sessions import check_sessions
from tests.soak.checker.states import check_states
from tests.soak.checker.views import Tenures, views_of
from tests.soak.history import journal
from tests.soak.history.operation import FINAL, Operation

REGISTERS = frozenset({"register", "once", "lock"})


def check_history(
    history: Path,
    scratch: Path,
    *,
    feed: Path | None = None,
    skew_s: float = 0.0,
    say: Callable[[str], None] = print,
) -> Findings:
    """Check the history of a folder, and what a consumer of the change feed recorded.

    Args:
        history: the folder of the journals.
        scratch: an empty folder for parts of the history.
        feed: the file of the consumer, which has read to the end.
        skew_s: how far the clock of a daemon may have been from the right time.
        say: takes a line about the progress.
    """
    findings = Findings()
    tenures = Tenures.of(journal.operations(history))
    parts = journal.split(journal.operations(history), scratch)
    rows, last_seq = _changes_by_key(feed, findings) if feed is not None else ({}, 0)
    for number, part in enumerate(parts):
        for name, operations in sorted(journal.load(part).items()):
            findings.add(check_partition(name, operations, tenures, skew_s=skew_s))
            if feed is not None and name.split("/", 1)[0] in REGISTERS:
                findings.add(_check_feed(name, operations, rows.get(name, []), last_seq))
        if number % 8 == 7:
            say(f"checked {number + 1} of {len(parts)} parts: {len(findings.anomalies)} anomalies")
    return findings


def check_partition(name: str, operations: Sequence[Operation], tenures: Tenures, *, skew_s: float = 0.0) -> Findings:
    """Check the operations on one key, or on one group of keys."""
    kind = name.split("/", 1)[0]
    if kind == "list":
        return check_lists(name, operations, tenures)
    if kind == "group":
        return check_states(name, operations, tenures)
    if kind == "counter":
        return check_counter(name, operations, tenures)
    if kind == "expiring":
        return check_expiry(name, operations, tenures, skew_s=skew_s)
    if kind in REGISTERS:
        views = views_of(operations, tenures)
        findings = check_register(name, views.durable)
        if any(each.function == "read" for each in views.dirty):
            findings.add(check_register(name, views.dirty))
        writes = [each for each in operations if each.function != "read"]
        findings.add(check_sessions(name, writes, views.monotonic))
        return findings
    return Findings([Anomaly.of("unknown kind of key", name, "the checker has no rule for it")])


def _changes_by_key(feed: Path, findings: Findings) -> tuple[dict[str, list[Change]], int]:
    findings.add(change_feed.check_order(change_feed.changes(feed)))
    rows: dict[str, list[Change]] = {}
    last_seq = 0
    for change in change_feed.changes(feed):
        last_seq = change.seq
        if change.key.split("/", 1)[0] in REGISTERS:
            rows.setdefault(change.key, []).append(change)
    return rows, last_seq


def _check_feed(name: str, operations: Sequence[Operation], rows: list[Change], last_seq: int) -> Findings:
    finals = [each for each in operations if each.session == FINAL and each.outcome == "ok"]
    if not finals:
        return Findings()
    return change_feed.check_key(name, operations, rows, last_seq=last_seq, final=finals[-1].value)
