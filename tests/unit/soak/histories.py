"""Short forms for histories that tests write by hand."""

from typing import Any

from tests.soak.checker.anomaly import Findings
from tests.soak.checker.views import Tenures
from tests.soak.history.operation import Function, Operation, Outcome

ALONE = Tenures({})
"""One writer that is never replaced."""


class Recorder:
    """Makes operations; every call is one of the given session."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(
        self,
        session: str,
        function: Function,
        value: Any,
        start: float,
        end: float,
        *,
        key: str = "register/k",
        outcome: Outcome = "ok",
        interface: str = "http",
        served_by: str = "writer-1",
        is_dirty: bool = False,
    ) -> Operation:
        number = len(self.operations)
        operation = Operation(
            session, number, interface, served_by, function, key, value, outcome, start, end, is_dirty
        )
        self.operations.append(operation)
        return operation

    def transactions(self, *steps: list[list[Any]], outcome: Outcome = "ok") -> None:
        """Add transactions of different sessions that all overlap."""
        for each in steps:
            self.add(f"s{len(self.operations)}", "txn", each, 0, 100, key="list/g/", outcome=outcome)


def kinds(findings: Findings) -> set[str]:
    return {anomaly.kind for anomaly in findings.anomalies}
