"""Counters: every acknowledged addition of one counts once."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.order import out_of_order
from tests.soak.checker.views import WRITERS, Tenures
from tests.soak.history.operation import Operation


def check_counter(key: str, history: Sequence[Operation], tenures: Tenures) -> Findings:
    """Check additions of one, whose results are durable, and reads of a counter that starts at 0."""
    findings = Findings()
    additions = [each for each in history if each.function == "add"]
    answered = sorted((each for each in additions if each.outcome == "ok"), key=_result)
    findings.count("additions", len(answered))
    begun = sorted(each.start for each in additions if each.outcome != "fail")
    for before, after in pairwise(answered):
        if before.value == after.value:
            text = f"two additions returned {after.value}: one of them is lost"
            findings.anomalies.append(Anomaly.of("lost update", key, text, [before, after]))
    for first, second in out_of_order(answered):
        text = f"{second.name} returned {second.value} before {first.name} began, which returned less"
        findings.anomalies.append(Anomaly.of("counter went back", key, text, [first, second]))
    for each in [*answered, *_reads(history)]:
        possible = _count_before(begun, each.end)
        if int(each.value or 0) > possible:
            text = f"{each.name} returned {each.value}; only {possible} additions had begun"
            findings.anomalies.append(Anomaly.of("counted twice", key, text, [each]))
    findings.add(_check_reads(key, answered, _reads(history), tenures))
    return findings


def _check_reads(key: str, answered: list[Operation], reads: list[Operation], tenures: Tenures) -> Findings:
    """Report reads of the writer that miss an addition that was acknowledged before they began."""
    findings = Findings()
    ends = sorted(answered, key=lambda each: each.end)
    for read in reads:
        if read.interface not in WRITERS or tenures.is_stale(read):
            continue
        acknowledged = [each for each in ends if each.end < read.start]
        newest = max(acknowledged, key=_result, default=None)
        count = max(len(acknowledged), _result(newest) if newest is not None else 0)
        if int(read.value or 0) < count:
            operations = [read] if newest is None else [newest, read]
            text = f"{read.name} read {read.value}; {count} was reached before"
            findings.anomalies.append(Anomaly.of("lost update", key, text, operations))
    return findings


def _reads(history: Sequence[Operation]) -> list[Operation]:
    return [each for each in history if each.function == "read" and each.outcome == "ok"]


def _result(operation: Operation) -> int:
    return int(operation.value)


def _count_before(begun: list[float], time: float) -> int:
    return bisect_right(begun, time)
