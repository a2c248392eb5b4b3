"""Where a read looks: a view and the newest sequence number that it sees."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shale.engine.read_view import ReadView
    from shale.errors import SstMissing
    from shale.types import Manifest

Durability = Literal["memory", "durable"]
"""``memory``: everything that is written; ``durable``: only what a crash cannot undo."""


class Claim(Protocol):
    """What a scan holds so that the versions it needs are kept; dropping it is enough."""

    def close(self) -> None:
        """Let go; may be called again."""
        ...


class Keeper(Protocol):
    """Who made a view: keeps what is visible at a sequence number, and knows newer views."""

    def hold(self, seq: int) -> Claim | None:
        """Keep what is visible at ``seq``; ``None`` where nothing can be kept that way."""
        ...

    def newest(self) -> "ReadView":
        """The newest view."""
        ...

    async def renew(self, gone: "SstMissing") -> None:
        """See to it that the newest view does without the SST that turned out to be gone.

        Raises:
            SstMissing: the newest manifest still names it, so it is lost.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """A view with the newest visible sequence number; ``None``: all that is in the view, also what is yet to come.

    ``keeper`` is ``None`` for a view on its own.  ``settle`` is asked for the point that counts when a scan begins.
    """

    view: "ReadView"
    max_seq: int | None = None
    keeper: Keeper | None = None
    settle: "Callable[[], Awaitable[ReadPoint]] | None" = None


class Home(Protocol):
    """Who knows the newest state, for lookups that must not cost a call.

    ``open_point`` is ``None`` as long as somebody has to be asked, for instance because everything is closed.
    """

    @property
    def open_point(self) -> ReadPoint | None:
        """Where lookups look now."""
        ...


@dataclass(frozen=True, slots=True)
class Nowhere:
    """A ``Home`` that always has to be asked."""

    open_point: ReadPoint | None = None


NOWHERE = Nowhere()


def names_sst(manifest: "Manifest", sst_id: str) -> bool:
    """Whether a view of the manifest shows this SST."""
    return any(str(view.sst.id) == sst_id for view in manifest.views())
