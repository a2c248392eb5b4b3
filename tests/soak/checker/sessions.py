"""What holds for reads that may be old: they show written values only, and never go back."""

from collections.abc import Sequence

from tests.soak.checker.anomaly import Anomaly, Findings
from tests.soak.history.operation import Operation


def check_sessions(key: str, writes: Sequence[Operation], reads: Sequence[Operation]) -> Findings:
    """Check reads of one key by sessions of which each asks one process.

    Args:
        key: the name of the register.
        writes: all ``write`` and ``cas`` operations of this key.
        reads: reads that may be old, in the order of their start.
    """
    findings = Findings()
    findings.count("reads that may be old", len(reads))
    by_value = {each.new_value: each for each in writes}
    newest: dict[tuple[str, str], tuple[Operation, Operation]] = {}
    for read in reads:
        if read.value is None:
            findings.anomalies += _vanished(key, read, newest.get((read.session, read.served_by)), writes)
            continue
        write = by_value.get(read.value)
        if write is None:
            findings.anomalies.append(Anomaly.of("unwritten value", key, f"no client wrote {read.value}", [read]))
        elif write.outcome == "fail":
            text = f"{read.value} was rejected and read"
            findings.anomalies.append(Anomaly.of("failed write visible", key, text, [write, read]))
        elif write.start > read.end:
            text = f"{read.value} was read before it was written"
            findings.anomalies.append(Anomaly.of("read from the future", key, text, [write, read]))
        else:
            findings.anomalies += _went_back(key, read, write, newest.get((read.session, read.served_by)))
            newest[read.session, read.served_by] = (read, write)
    return findings


def _went_back(
    key: str, read: Operation, write: Operation, before: tuple[Operation, Operation] | None
) -> list[Anomaly]:
    if before is None or not (write.outcome == "ok" and write.end < before[1].start):
        return []
    text = f"{before[0].name} had read {before[1].name}, which was written after {write.name}"
    return [Anomaly.of("session went back", key, text, [write, before[1], before[0], read])]


def _vanished(
    key: str, read: Operation, before: tuple[Operation, Operation] | None, writes: Sequence[Operation]
) -> list[Anomaly]:
    """Report an absent key that the session had seen, if no deletion can explain it."""
    if before is None or any(each.new_value is None and each.outcome != "fail" for each in writes):
        return []
    text = f"{before[0].name} had read {before[1].name}; then the key was absent, and no client deleted it"
    return [Anomaly.of("session went back", key, text, [before[1], before[0], read])]
