"""What the parts of a simulation need of each other: the process of its world, and the store of both."""

from collections.abc import Callable
from typing import Any, Protocol

from shale.store.memory import MemoryStore
from shale.store.port import PutMode
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.telemetry.metrics import Metrics
from shale.testing.swarm import SimOptions
from shale.testing.virtual_loop import VirtualLoop


class SimWorld(Protocol):
    """The simulation that processes run in (``shale.testing.simulation``)."""

    seed: int
    options: SimOptions
    tolerates_panic: bool
    loop: VirtualLoop
    memory: MemoryStore
    records: MemoryTransactionalStore
    two_phase: bool
    unannounced: set[str]
    metrics: Metrics

    def note_request(self, process: Any, op: str, key: str, outcome: str) -> None:
        """Record a request that has reached the store."""
        ...

    def note_mutation(
        self, process: Any, op: str, key: str, mode: PutMode | None, data: bytes | None, *, sent_s: float
    ) -> None:
        """Record a change of the store and check the invariants."""
        ...

    def note_death(self, process: Any) -> None:
        """Record that a process was killed."""
        ...

    def note_end(self) -> None:
        """Stop the run if nothing is left to do."""
        ...

    def note_failure(self, what: str, error: BaseException) -> None:
        """Stop the run because of an error that no fault explains."""
        ...

    def guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return ``callback`` with its errors ending the simulation."""
        ...


class SimHost(Protocol):
    """The process that a simulated store belongs to (``shale.testing.sim_process``)."""

    sim: SimWorld
    is_killed: bool

    @property
    def is_suspended(self) -> bool:
        """Whether the process is frozen or killed."""
        ...

    def refuse_if_gone(self) -> None:
        """Raise ``CancelledError`` if the simulation is over."""
        ...

    def freeze(self, seconds: float) -> None:
        """Stop every task and timer for a while."""
        ...

    def kill(self) -> None:
        """End the process without clean-up."""
        ...
