"""Whether a claimed order of operations agrees with the order of time."""

from collections.abc import Iterable, Iterator

from tests.soak.history.operation import Operation


def out_of_order(claimed: Iterable[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Yield pairs of which the first is claimed to come first, although the second one had ended before it began."""
    latest: Operation | None = None
    for operation in claimed:
        if latest is not None and operation.end < latest.start:
            yield latest, operation
        if latest is None or operation.start > latest.start:
            latest = operation
