"""The real writer, compactor, collector and reader on one database, under every fault.

Every process runs the code that its daemon runs, and all rules of docs/reference/protocol.md, Appendix B, are checked
after every mutation of the store.
"""

import pytest

from tests.simulation.conftest import simulated_slowly
from tests.simulation.whole_system import everything


@pytest.mark.slow
@simulated_slowly
def test_everything_at_once(seed: int) -> None:
    everything(seed)


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    assert everything(1, minutes=10) == everything(1, minutes=10)
