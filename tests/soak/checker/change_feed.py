"""The change feed: every durable write once, in the order of the sequence numbers, which is an order of time."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.order import out_of_order
from tests.soak.history.operation import Operation

SUFFIX = ".feed.jsonl"


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the feed; ``value`` is the name in it, ``None`` for a deletion."""

    seq: int
    key: str
    value: str | None


def changes(file: Path) -> Iterator[Change]:
    """Read what a consumer recorded."""
    with file.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                for seq, key, value in json.loads(line)["rows"]:
                    yield Change(seq, key, value)


def check_order(source: Iterable[Change]) -> Findings:
    """Check that no commit comes twice or after a later one; a commit has one row for each of its keys."""
    findings = Findings()
    last, keys = 0, set[str]()
    for change in source:
        findings.count("changes in the feed")
        if change.seq > last:
            last, keys = change.seq, {change.key}
        elif change.seq < last:
            text = f"{change.key}: the change {change.seq} comes after {last}"
            findings.anomalies.append(Anomaly.of("feed out of order", "feed", text))
        elif change.key in keys:
            text = f"{change.key}: the change {change.seq} comes twice"
            findings.anomalies.append(Anomaly.of("duplicate in the feed", "feed", text))
        else:
            keys.add(change.key)
    return findings


def check_key(
    key: str, history: Sequence[Operation], found: Sequence[Change], *, last_seq: int, final: str | None
) -> Findings:
    """Check the changes of one register against the operations on it.

    Args:
        key: the name of the register.
        history: its ``write`` and ``cas`` operations.
        found: its changes, in the order of the feed.
        last_seq: the sequence number up to which the feed was read: the end.
        final: the value after the end of all operations.
    """
    findings = Findings()
    writes = {each.new_value: each for each in history if each.function in ("write", "cas")}
    seqs: dict[str, int] = {}
    for change in found:
        if change.value is None:
            continue
        write = writes.get(change.value)
        if write is None or write.outcome == "fail":
            text = f"the feed has {change.value}, which " + ("was rejected" if write else "no client wrote")
            findings.anomalies.append(Anomaly.of("failed write in the feed", key, text))
        elif change.value in seqs:
            text = f"the feed has {change.value} twice: {seqs[change.value]} and {change.seq}"
            findings.anomalies.append(Anomaly.of("duplicate in the feed", key, text, [write]))
        seqs.setdefault(change.value, change.seq)
    acknowledged = [each for value, each in writes.items() if each.outcome == "ok" and value is not None]
    for write in acknowledged:
        if str(write.new_value) not in seqs:
            text = f"{write.name} was acknowledged; the feed up to {last_seq} does not have it"
            findings.anomalies.append(Anomaly.of("missing in the feed", key, text, [write]))
    present = sorted(
        (each for each in acknowledged if str(each.new_value) in seqs), key=lambda each: seqs[str(each.new_value)]
    )
    for first, second in out_of_order(present):
        text = f"the feed has {first.name} before {second.name}, which had ended before it began"
        findings.anomalies.append(Anomaly.of("feed out of order", key, text, [second, first]))
    if found and found[-1].value != final:
        text = f"the last change is {found[-1].value}; the database has {final}"
        findings.anomalies.append(Anomaly.of("feed differs from the database", key, text))
    findings.count("changes compared with writes", len(found))
    return findings
