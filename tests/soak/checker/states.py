"""Batches and scans: a scan shows one state, so it has all rows of a batch or none."""

from collections.abc import Sequence

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.checker.views import WRITERS, Tenures
from tests.soak.history.operation import Operation


def check_states(group: str, history: Sequence[Operation], tenures: Tenures) -> Findings:
    """Check one group of keys, to all of which each batch writes its own name.

    Args:
        group: what the keys have in common.
        history: ``batch`` operations with one value, and ``scan`` operations with the values that were read.
        tenures: which writers were replaced when.
    """
    findings = Findings()
    batches = {str(each.value): each for each in history if each.function == "batch"}
    scans = [each for each in history if each.function == "scan" and each.outcome == "ok"]
    findings.count("scans of one state", len(scans))
    newest: dict[tuple[str, str], tuple[Operation, Operation]] = {}
    for scan in sorted(scans, key=lambda each: each.start):
        seen = {str(value) for value in scan.value.values()}
        sizes = len(scan.value)
        if len(seen) > 1:
            text = f"{scan.name} shows rows of the batches {', '.join(sorted(seen))}"
            findings.anomalies.append(
                Anomaly.of("torn state", group, text, [batches[n] for n in seen if n in batches] + [scan])
            )
            continue
        if not seen:
            findings.anomalies += _emptied(group, scan, newest.get((scan.session, scan.served_by)))
            findings.anomalies += _missing(group, scan, batches, tenures)
            continue
        batch = batches.get(next(iter(seen)))
        if batch is None or batch.outcome == "fail":
            text = f"{scan.name} shows {next(iter(seen))}, which " + ("was rejected" if batch else "no client wrote")
            findings.anomalies.append(Anomaly.of("failed write visible", group, text, [scan]))
            continue
        if sizes != len(batch_keys(scans)):
            missing = sorted(batch_keys(scans) - set(scan.value))
            text = f"{scan.name} has {sizes} rows of {batch.name}; missing are {', '.join(missing)}"
            findings.anomalies.append(Anomaly.of("torn state", group, text, [batch, scan]))
        findings.anomalies += _order(group, scan, batch, newest.get((scan.session, scan.served_by)))
        newest[scan.session, scan.served_by] = (scan, batch)
        findings.anomalies += _recency(group, scan, batch, batches, tenures)
    return findings


def batch_keys(scans: Sequence[Operation]) -> set[str]:
    """Return all keys of the group that any scan shows."""
    found: set[str] = set()
    for scan in scans:
        found.update(scan.value)
    return found


def _emptied(group: str, scan: Operation, before: tuple[Operation, Operation] | None) -> list[Anomaly]:
    if before is None:
        return []
    text = f"{scan.name} shows nothing; {before[0].name} had shown {before[1].name}"
    return [Anomaly.of("session went back", group, text, [before[1], before[0], scan])]


def _missing(group: str, scan: Operation, batches: dict[str, Operation], tenures: Tenures) -> list[Anomaly]:
    if scan.interface not in WRITERS or tenures.is_stale(scan):
        return []
    lost = [each for each in batches.values() if each.outcome == "ok" and each.end < scan.start]
    text = f"{scan.name} shows nothing; {len(lost)} batches were acknowledged before it began"
    return [Anomaly.of("lost update", group, text, [*lost[:3], scan])] if lost else []


def _order(group: str, scan: Operation, batch: Operation, before: tuple[Operation, Operation] | None) -> list[Anomaly]:
    if before is None or batch.outcome != "ok" or batch.end >= before[1].start:
        return []
    text = f"{scan.name} shows {batch.name}; {before[0].name} had shown the later {before[1].name}"
    return [Anomaly.of("session went back", group, text, [batch, before[1], before[0], scan])]


def _recency(
    group: str, scan: Operation, batch: Operation, batches: dict[str, Operation], tenures: Tenures
) -> list[Anomaly]:
    """Report a scan of the writer that misses a batch acknowledged before the scan began."""
    if scan.interface not in WRITERS or tenures.is_stale(scan) or batch.outcome != "ok":
        return []
    for other in batches.values():
        if other.outcome == "ok" and batch.end < other.start and other.end < scan.start:
            text = f"{scan.name} shows {batch.name}; the later {other.name} was acknowledged before the scan"
            return [Anomaly.of("lost update", group, text, [batch, other, scan])]
    return []
