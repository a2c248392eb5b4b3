"""How many requests a scenario takes, for tests that end a process at any of them."""

from shale.testing.simulation import Simulation

_PER_REQUEST = 2
"""A two-phase create takes five requests; a scenario, which also reads and lists, less than twice as many as before."""


def at_most(sim: Simulation, native: int) -> int:
    """Return an upper bound of the requests of a scenario that takes fewer than ``native`` with conditional writes."""
    return native * _PER_REQUEST if sim.two_phase else native
