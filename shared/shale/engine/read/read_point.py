"""Where a read takes place: a super version and the newest sequence number it sees."""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from shale.core.lazy_dataclass import dataclass
from shale.engine.read.super_version import SuperVersion
from shale.errors import SstMissing
from shale.types import Manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Durability = Literal["memory", "durable"]
"""``memory``: every write; ``durable``: only writes that survive a crash."""


class SeqHold(Protocol):
    """Keeps the versions that a scan at a sequence number needs; dropping the object is enough."""

    def close(self) -> None:
        """Release the hold; may be called again."""
        ...


class ViewProvider(Protocol):
    """The owner of a super version: keeps old versions of rows, and knows newer super versions."""

    def hold(self, seq: int) -> SeqHold | None:
        """Keep what is visible at ``seq``; ``None`` if the owner cannot keep old versions."""
        ...

    def newest_view(self) -> SuperVersion:
        """Return the newest super version."""
        ...

    async def on_sst_missing(self, gone: SstMissing) -> None:
        """Replace the newest super version by one that does without a missing SST.

        Raises:
            SstMissing: the newest manifest still names it, so it is lost.
        """
        ...


class ReadPoint(NamedTuple):
    """A super version with the newest visible sequence number.

    Args:
        view: the state to read.
        max_seq: newer versions are invisible; ``None``: everything is visible, later writes included.
        view_provider: the owner of the view; ``None`` for a view without one.
        resolve: returns the point that counts once a scan begins; ``None``: this one counts.
    """

    view: SuperVersion
    max_seq: int | None = None
    view_provider: ViewProvider | None = None
    resolve: "Callable[[], Awaitable[ReadPoint]] | None" = None


class PointSource(Protocol):
    """Gives lookups the newest state without a call."""

    @property
    def fast_point(self) -> ReadPoint | None:
        """Where lookups read now; ``None`` while each must be checked, for instance because the handle is closed."""
        ...


@dataclass(frozen=True, slots=True)
class NullSource:
    """A ``PointSource`` that has each lookup checked."""

    fast_point: ReadPoint | None = None


NULL_SOURCE = NullSource()


def names_sst(manifest: Manifest, sst_id: str) -> bool:
    """Return whether a view of the manifest shows this SST."""
    return any(str(view.sst.id) == sst_id for view in manifest.views())
