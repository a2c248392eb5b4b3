"""Rules for a namespace of sequenced files and its boundary: docs/reference/protocol.md, Appendix B, 1 to 3 and 14."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from shale.format.boundary import decode_boundary
from shale.protocol.versioned import Namespace, T
from shale.store.port import Create
from shale.testing.mutation_log import Mutation

if TYPE_CHECKING:
    from shale.testing.simulation import Simulation

Step = Callable[[T, T, Mutation], None]
"""Checks the step from one version to the next; raises ``AssertionError``."""


class SequencedInvariants(Generic[T]):
    """Checks one namespace.

    Args:
        check_step: called for every version after the first, with the version before it.
        boundaries: if off, ids may be deleted without a boundary and created again by suspended writers; such files
            are not versions.
        boundary_may_go: the test deletes or changes boundary files from outside.

    Attributes:
        versions: every version there ever was, decoded, zombies excluded.
        latest_id: the highest id that was ever created.
    """

    def __init__(
        self,
        namespace: Namespace[T],
        *,
        check_step: Step[T] | None = None,
        boundaries: bool = True,
        boundary_may_go: bool = False,
    ) -> None:
        self.namespace = namespace
        self.versions: dict[int, T] = {}
        self.zombies: set[int] = set()
        self.latest_id = 0
        self.boundary = 0
        self._check_step = check_step
        self._boundaries = boundaries
        self._boundary_may_go = boundary_may_go
        self._existing: set[int] = set()

    @property
    def latest(self) -> T:
        """The newest version."""
        return self.versions[self.latest_id]

    def after(self, mutation: Mutation, sim: "Simulation") -> None:
        """See ``Invariants``."""
        del sim
        if mutation.key == self.namespace.boundary_key:
            self._after_boundary(mutation)
        elif (file_id := self.namespace.parse(mutation.key)) is not None:
            if mutation.op == "delete":
                self._after_delete(file_id)
            else:
                self._after_create(file_id, mutation)

    def _after_create(self, file_id: int, mutation: Mutation) -> None:
        assert isinstance(mutation.mode, Create), f"{mutation}: a sequenced file must be created, never overwritten"
        assert mutation.data is not None
        self._existing.add(file_id)
        if file_id <= self.latest_id:
            assert not self._boundaries or file_id <= self.boundary, f"{mutation}: id {file_id} was used before"
            self.zombies.add(file_id)
            return
        assert file_id == self.latest_id + 1, f"{mutation}: id {file_id} follows {self.latest_id}"
        assert file_id > self.boundary, f"{mutation}: new, but at or below the boundary {self.boundary}"
        value = self.namespace.decode(mutation.data, mutation.key)
        before = self.versions.get(file_id - 1)
        self.versions[file_id] = value
        self.latest_id = file_id
        if before is not None and self._check_step is not None:
            _check_as_any_role(self._check_step, before, value, mutation)

    def _after_delete(self, file_id: int) -> None:
        if file_id not in self._existing:
            return
        self._existing.discard(file_id)
        assert file_id != self.latest_id, f"the latest version {file_id} was deleted"
        assert not self._boundaries or file_id <= self.boundary, f"{file_id} was deleted above {self.boundary}"

    def _after_boundary(self, mutation: Mutation) -> None:
        if self._boundary_may_go:
            return
        assert mutation.data is not None, "a boundary file was deleted"
        value = decode_boundary(mutation.data)
        assert value >= self.boundary, f"the boundary went back from {self.boundary} to {value}"
        assert value < self.latest_id, f"the boundary {value} reaches the latest id {self.latest_id}"
        self.boundary = value


def _check_as_any_role(check: Step[T], before: T, value: T, mutation: Mutation) -> None:
    """Check a step of a process with several roles (``writer+compactor``): one of them may make it."""
    *others, last = mutation.role.split("+")
    for role in others:
        with suppress(AssertionError):
            check(before, value, replace(mutation, role=role))
            return
    check(before, value, replace(mutation, role=last))
