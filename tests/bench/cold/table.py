"""Our number beside those of the peers."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from tests.bench.line import BenchLine


def beside(name: str, values: Mapping[str, Sequence[float]], target: str, unit: str) -> Iterator[BenchLine]:
    """Return our line beside each peer, or alone; ``values`` of all rounds by engine."""
    ours = median(values["shale"])
    peers = {peer: median(theirs) for peer, theirs in values.items() if peer != "shale"}
    for peer, reference in peers.items():
        yield BenchLine(name=f"{name} | {peer}", ours=ours, reference=reference, unit=unit, target=target)
    if not peers:
        yield BenchLine(name=name, ours=ours, unit=unit, target=target)
