"""Rows with a lifetime: present before they expire, never back after they were absent, and never older rows instead.

A row that has expired may be shown until a flush or a compaction removes it, as in SlateDB.  Reads that hide expired
rows (``read_live``) may not show it.  Daemons decide by their wall clocks, which a fault may change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.views import WRITERS, Tenures
from tests.soak.history.operation import NEVER, Operation

MARGIN_S = 1.0
"""For the rounding of times, and for what a client does between two looks at its clock."""


@dataclass(frozen=True)
class _Row:
    """A written row, and when it may and must have expired."""

    write: Operation
    earliest: float
    latest: float

    @classmethod
    def of(cls, write: Operation, skew_s: float) -> "_Row":
        if write.function != "write_until":
            return cls(write, NEVER, NEVER)
        _, meaning, time = write.value
        uncertain_s = skew_s + MARGIN_S
        if meaning == "until":
            return cls(write, time - uncertain_s, time + uncertain_s)
        # The time of the commit is that of the writer's clock, which may differ, too.
        latest = write.end + time + uncertain_s + skew_s if write.outcome == "ok" else NEVER
        return cls(write, write.start + time - uncertain_s - skew_s, latest)


@dataclass
class _Key:
    name: str
    rows: dict[str, _Row]
    findings: Findings = field(default_factory=Findings)

    def report(self, kind: str, text: str, *operations: Operation) -> None:
        self.findings.anomalies.append(Anomaly.of(kind, self.name, text, operations))

    def may_be_absent(self, row: _Row, at: float) -> bool:
        """Say whether a row whose write has ended may be absent: it, or one that replaced it, may have expired."""
        replacing = (
            each
            for each in self.rows.values()
            if each is row
            or (each.write.start <= at and (each.write.end >= row.write.start or each.write.outcome != "ok"))
        )
        return any(each.earliest <= at and each.write.outcome != "fail" for each in replacing)


def check_expiry(name: str, history: Sequence[Operation], tenures: Tenures, *, skew_s: float = 0.0) -> Findings:
    """Check the operations on one key, some of whose rows have a lifetime.

    Args:
        name: the key.
        history: ``write``, ``write_until``, ``read`` and ``read_live`` operations.
        tenures: which writers were replaced when.
        skew_s: how far the clock of a daemon may be from the right time.
    """
    writes = [each for each in history if each.function in ("write", "write_until")]
    key = _Key(name, {str(each.new_value): _Row.of(each, skew_s) for each in writes})
    reads = [each for each in history if each.function in ("read", "read_live") and each.outcome == "ok"]
    reads.sort(key=lambda each: each.start)
    key.findings.count("reads of rows with a lifetime", len(reads))
    shown = [each for each in reads if _is_possible(key, each)]
    current = [each for each in shown if each.interface in WRITERS and not tenures.is_stale(each)]
    for read in current:
        _check_recency(key, read)
    _check_return(key, current)
    sessions: dict[tuple[str, str], list[Operation]] = {}
    for read in shown:
        sessions.setdefault((read.session, read.served_by), []).append(read)
    for each in sessions.values():
        _check_session(key, each)
    return key.findings


def _is_possible(key: _Key, read: Operation) -> bool:
    """Report a value that was not written, was rejected, or had expired."""
    if read.value is None:
        return True
    row = key.rows.get(read.value)
    if row is None:
        key.report("unwritten value", f"no client wrote {read.value}", read)
    elif row.write.outcome == "fail":
        key.report("failed write visible", f"{read.value} was rejected and read", row.write, read)
    elif row.write.start > read.end:
        key.report("read from the future", f"{read.value} was read before it was written", row.write, read)
    elif read.function == "read_live" and read.start > row.latest:
        key.report("expired row visible", f"{read.value} had expired when {read.name} began", row.write, read)
    else:
        return True
    return False


def _check_recency(key: _Key, read: Operation) -> None:
    """Report a read of the writer that misses a row acknowledged before it began."""
    before = [each for each in key.rows.values() if each.write.outcome == "ok" and each.write.end < read.start]
    if read.value is None:
        lost = [each.write for each in before if not key.may_be_absent(each, read.end)]
        if lost:
            key.report("lost update", f"{read.name} shows nothing, and {lost[0].name} has not expired", lost[0], read)
        return
    shown = key.rows[read.value].write
    newer = [each.write for each in before if shown.outcome == "ok" and shown.end < each.write.start]
    if newer:
        text = f"{read.name} shows {shown.name}, which {newer[0].name} had replaced"
        key.report("older row came back", text, shown, newer[0], read)


def _check_return(key: _Key, reads: Sequence[Operation]) -> None:
    """Report a row that the writer shows after a read that shows what is stored had found it absent."""
    absent: list[Operation] = []
    for read in (each for each in reads if each.function == "read"):
        if read.value is None:
            absent.append(read)
            continue
        write = key.rows[read.value].write
        between = [each for each in absent if write.end < each.start and each.end < read.start]
        if between and write.outcome == "ok":
            text = f"{between[0].name} showed nothing; then {read.name} shows {write.name} again"
            key.report("expired row came back", text, write, between[0], read)


def _check_session(key: _Key, reads: Sequence[Operation]) -> None:
    """Report what goes back in the reads of one session that one process served; they may be old."""
    newest: tuple[Operation, _Row] | None = None
    absent: dict[str, Operation] = {}
    """By function, the last read that showed nothing after ``newest``."""
    for read in reads:
        if read.value is None:
            if newest is not None:
                absent[read.function] = read
                if not key.may_be_absent(newest[1], read.end):
                    text = f"{newest[0].name} showed {newest[1].write.name}; then {read.name} shows nothing"
                    key.report("session went back", text, newest[1].write, newest[0], read)
            continue
        row = key.rows[read.value]
        if newest is not None and row.write.outcome == "ok" and row.write.end < newest[1].write.start:
            text = f"{newest[0].name} showed {newest[1].write.name}; then {read.name} shows the older {row.write.name}"
            key.report("session went back", text, row.write, newest[1].write, read)
        if newest is not None and row is newest[1] and read.function == "read" and "read" in absent:
            text = f"{absent['read'].name} showed nothing; then {read.name} shows {row.write.name} again"
            key.report("expired row came back", text, row.write, absent["read"], read)
        newest, absent = (read, row), {}
