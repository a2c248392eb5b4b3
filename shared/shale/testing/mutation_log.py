"""The log of a simulation's store: every mutation, and a fingerprint of all requests."""

import hashlib
from dataclasses import field

from shale.core.lazy_dataclass import dataclass
from shale.store.port import PutMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change of the store, at the moment at which it took effect.

    ``data`` is ``None`` for a delete.  ``role`` is what the process said it was, see ``Simulation.start``.
    ``sent_s``: when the process sent the request; either may have been delayed since.
    """

    index: int
    time_s: float
    sent_s: float
    process: str
    role: str
    op: str
    key: str
    mode: PutMode | None = None
    data: bytes | None = None

    def __str__(self) -> str:
        size = "" if self.data is None else f" {len(self.data)} bytes"
        return f"{self.time_s:12.4f} {self.process}: {self.op} {self.key}{size}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A put that the store refused, because another process had created the object."""

    time_s: float
    process: str
    key: str


@dataclass(slots=True)
class MutationLog:
    """All mutations in order, and the puts that were refused.  Two runs with one seed have equal fingerprints."""

    mutations: list[Mutation] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    requests: int = 0
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def note_request(self, time_s: float, process: str, op: str, key: str, outcome: str) -> None:
        """Add a request that reached the store to the fingerprint."""
        self.requests += 1
        self._digest.update(f"{time_s!r} {process} {op} {key} {outcome}\n".encode())
        if op == "put" and outcome != "ok":
            self.refusals.append(Refusal(time_s, process, key))

    def append(self, mutation: Mutation) -> None:
        """Add a mutation."""
        self.mutations.append(mutation)
        self._digest.update(mutation.data or b"")

    @property
    def fingerprint(self) -> str:
        """A hash over every request, its time and its outcome."""
        return self._digest.hexdigest()

    def of(self, key_part: str) -> list[Mutation]:
        """Return the mutations of keys that contain a text."""
        return [mutation for mutation in self.mutations if key_part in mutation.key]

    def refused(self, process: str, key_part: str = "") -> list[Refusal]:
        """Return the refused puts of a process, at keys that contain a text."""
        return [refusal for refusal in self.refusals if refusal.process == process and key_part in refusal.key]

    def creator(self, key: str) -> str | None:
        """Return the process that created an object, if it is known."""
        return next((mutation.process for mutation in self.mutations if mutation.key == key), None)

    def tail(self, count: int = 40) -> str:
        """Return the last mutations as text, for errors."""
        return "\n".join(str(mutation) for mutation in self.mutations[-count:])
