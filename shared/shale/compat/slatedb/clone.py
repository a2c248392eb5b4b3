"""``CloneBuilder``: a clone of one database or of several, whole or in part."""

from dataclasses import dataclass, field

from shale.clones.clone import create_clone
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneSource
from shale.compat.slatedb.arguments import bounds_of
from shale.compat.slatedb.background import Place
from shale.compat.slatedb.errors import invalid, translated, translates
from shale.compat.slatedb.handles import Handle, checkpoint_id_of
from shale.compat.slatedb.options import CloneSourceSpec
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.values import KeyRange
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.store.port import ObjectStore as Adapter
from shale.types import KeyRange as Keys


@dataclass(slots=True)
class _Plan:
    """What has been said so far."""

    path: str
    sources: list[CloneSource] = field(default_factory=list)
    keys: Keys | None = None
    store: Adapter | None = None
    wal_store: Adapter | None = None
    is_used: bool = False


class CloneBuilder(Handle):
    """Made by ``Admin.create_clone_builder_from_source``; used up by ``build``."""

    __slots__ = ("_place", "_plan")

    _place: Place
    _plan: _Plan

    @classmethod
    def _of(cls, place: Place, source: CloneSourceSpec, wal_store: Adapter | None) -> "CloneBuilder":
        builder = cls._blank()
        builder._place = place
        builder._plan = _Plan(place.root, [_source(source)], wal_store=wal_store)
        return builder

    def with_source(self, source: CloneSourceSpec) -> None:
        """One more database that the clone begins with."""
        self._require_unused()
        self._plan.sources.append(_source(source))

    def with_clone_path(self, clone_path: str) -> None:
        """Where the clone is made."""
        self._require_unused()
        with translated():
            self._plan.path = normalize_path(clone_path)

    def with_object_store(self, object_store: ObjectStore) -> None:
        """The store of the clone and its sources."""
        self._require_unused()
        self._plan.store = self._connected(adapter_of(object_store))

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """The store of their WAL, if it is not the administrator's."""
        self._require_unused()
        self._plan.wal_store = self._connected(adapter_of(wal_object_store), store_type="wal")

    def with_projection_range(self, projection_range: KeyRange | None) -> None:
        """The keys that the clone shows."""
        self._require_unused()
        self._plan.keys = _keys(projection_range)

    def with_seed(self, seed: int) -> None:
        """Has no effect."""
        self._require_unused()

    @translates
    async def build(self) -> None:
        """Make the clone, or finish one that was begun.

        Raises:
            Error: the sources cannot be cloned or united, or something else is at the path.
        """
        self._require_unused()
        plan, place = self._plan, self._place
        plan.is_used = True
        neighbours = Neighbours(
            place.store if plan.store is None else plan.store, place.env, place.metrics, plan.wal_store
        )
        # SlateDB never asks whether ranges are adjacent.
        await create_clone(
            neighbours, CloneRequest(path=plan.path, sources=tuple(plan.sources), keys=plan.keys, allow_gaps=True)
        )

    def _connected(self, adapter: Adapter, *, store_type: str = "main") -> Adapter:
        return connect(adapter, self._place.env, self._place.metrics, component="admin", store_type=store_type)

    def _require_unused(self) -> None:
        if self._plan.is_used:
            raise invalid("builder has already been consumed")


def _source(source: CloneSourceSpec) -> CloneSource:
    checkpoint = None if source.checkpoint is None else checkpoint_id_of(source.checkpoint)
    with translated():
        path = normalize_path(source.path)
    return CloneSource(path=path, checkpoint=checkpoint, keys=_keys(source.projection_range))


def _keys(key_range: KeyRange | None) -> Keys | None:
    return None if key_range is None else Keys.half_open(*bounds_of(key_range))
