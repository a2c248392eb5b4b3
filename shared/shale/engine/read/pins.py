"""References of running reads to a protected state.

A managed reader replaces its checkpoint when the database changes.  Scans of the old state still need the old
checkpoint, so the reader releases it after the last of them has ended (docs/reference/protocol.md 5.3).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID
from weakref import WeakSet

from shale.engine.read.read_options import ReadTable
from shale.engine.write.durability import reraise
from shale.errors import ShaleError

if TYPE_CHECKING:
    from shale.iter.source import RowSource


class OpenView(Protocol):
    """What a running scan keeps in memory: a super version, seen from here."""

    @property
    def tables(self) -> Sequence[ReadTable]:
        """The memtables, newest first."""
        ...


class PinRef:
    """A running scan's or lookup's reference to a pin; dropping the object releases it.

    ``view`` and ``source`` are what a scan has open.  They keep memtables in memory, so ``restart`` may drop them
    whenever the scan waits; the scan then opens them again after its last row.
    """

    __slots__ = ("__weakref__", "pin", "source", "view")

    def __init__(self, pin: "Pin") -> None:
        self.pin = pin
        self.view: OpenView | None = None
        self.source: RowSource | None = None

    def restart(self) -> None:
        """Drop what is open."""
        self.view = self.source = None


class Pin:
    """One protected state.

    Args:
        checkpoint_id: the checkpoint that protects it; ``None`` for a reader that follows without protection.
        expire_s: when the checkpoint expires, in seconds since 1970.

    ``is_closing`` is set while the commit that removes the checkpoint is under way: new reads wait for its end.
    """

    def __init__(self, checkpoint_id: UUID | None = None, expire_s: int = 0) -> None:
        self.checkpoint_id = checkpoint_id
        self.expire_s = expire_s
        self.is_closing = False
        self._error: ShaleError | None = None
        self._refs: WeakSet[PinRef] = WeakSet()

    def acquire(self) -> PinRef:
        """Return a reference that keeps the state until it is dropped.

        Raises:
            ShaleError: see ``check``.
        """
        self.check()
        ref = PinRef(self)
        self._refs.add(ref)
        return ref

    @property
    def is_usable(self) -> bool:
        """Whether a read may begin now, without waiting for a commit."""
        return self._error is None and not self.is_closing

    @property
    def is_referenced(self) -> bool:
        """Whether a read is under way."""
        return bool(self._refs)

    def views(self) -> Iterator[OpenView]:
        """Yield what scans have open."""
        return (ref.view for ref in self._refs if ref.view is not None)

    def restart(self) -> None:
        """Make every scan open its sources again before it reads on."""
        for ref in self._refs:
            ref.restart()

    def fail(self, error: ShaleError) -> None:
        """Make every read fail with an error: the state is no longer protected, or the reader is closed."""
        self._error = error

    def check(self) -> None:
        """Raise the error of ``fail``, if there is one."""
        if self._error is not None:
            reraise(self._error)
