"""How many requests a scenario takes, for tests that end a process at any of them."""

from shale.testing.simulation import Simulation


def at_most(sim: Simulation, native: int, *, two_phase: int) -> int:
    """Return an upper bound of the requests of a scenario.

    A create takes five requests where it is made in two phases, and a deletion of numbered files four more.
    """
    return two_phase if sim.two_phase else native
