"""What keeps the objects under a view alive, and who still relies on it.

A managed reader replaces its checkpoint when the database changes.  Scans of the old state still need the old one, so
it is released only after the last of them is gone (docs/protocol.md 5.3).
"""

from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakSet

from shale.engine.progress import raise_again
from shale.errors import ShaleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shale.engine.read_view import ReadView
    from shale.iter.source import RowSource


class Use:
    """Held by a scan or a lookup while it runs; dropping it is enough.

    ``view`` and ``source`` are what a scan has open, if anything: with them memtables stay in memory.  They may be gone
    whenever the scan has waited; then it opens them again, for what is behind its last row.
    """

    __slots__ = ("__weakref__", "pin", "source", "view")

    def __init__(self, pin: "Pin") -> None:
        self.pin = pin
        self.view: ReadView | None = None
        self.source: RowSource | None = None

    def begin_again(self) -> None:
        """Let go of what is open."""
        self.view = self.source = None


class Pin:
    """One protected state.  ``checkpoint_id`` is ``None`` where nothing protects it (a reader that follows).

    ``is_closing`` is set while the commit that removes the checkpoint is under way: new uses wait for its end.
    """

    def __init__(self, checkpoint_id: UUID | None = None, expire_s: int = 0) -> None:
        self.checkpoint_id = checkpoint_id
        self.expire_s = expire_s
        self.is_closing = False
        self._error: ShaleError | None = None
        self._uses: WeakSet[Use] = WeakSet()

    def use(self) -> Use:
        """Rely on the state until the result is dropped.

        Raises:
            ShaleError: see ``check``.
        """
        self.check()
        use = Use(self)
        self._uses.add(use)
        return use

    @property
    def is_used(self) -> bool:
        """Whether somebody relies on it."""
        return bool(self._uses)

    def views(self) -> "Iterator[ReadView]":
        """What scans have open."""
        return (use.view for use in self._uses if use.view is not None)

    def begin_again(self) -> None:
        """Let every scan open anew what it reads."""
        for use in self._uses:
            use.begin_again()

    def fail(self, error: ShaleError) -> None:
        """End every use: the state is not protected any more, or the reader is closed."""
        self._error = error

    def check(self) -> None:
        """Raise what ended the use of this state."""
        if self._error is not None:
            raise_again(self._error)
