"""``CloneBuilder``: a clone of one database or of several, whole or in part."""

from dataclasses import dataclass, field

from shale.clones.clone import create_clone
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.request import CloneRequest, CloneSource
from shale.compat.slatedb.arguments import bounds_of
from shale.compat.slatedb.embedded import EmbeddedContext
from shale.compat.slatedb.errors import invalid, raises_slatedb_errors, slatedb_errors
from shale.compat.slatedb.handles import Handle, parse_checkpoint_id
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.types.options import CloneSourceSpec
from shale.compat.slatedb.types.records import KeyRange
from shale.store.connect import connect
from shale.store.location import normalize_path
from shale.store.port import ObjectStore as Adapter
from shale.types import KeyRange as Keys


@dataclass(slots=True)
class _Plan:
    """The builder's state."""

    path: str
    sources: list[CloneSource] = field(default_factory=list)
    keys: Keys | None = None
    store: Adapter | None = None
    wal_store: Adapter | None = None
    is_used: bool = False


class CloneBuilder(Handle):
    """Made by ``Admin.create_clone_builder_from_source``; ``build`` can be called once."""

    __slots__ = ("_place", "_plan")

    _place: EmbeddedContext
    _plan: _Plan

    @classmethod
    def _of(cls, place: EmbeddedContext, source: CloneSourceSpec, wal_store: Adapter | None) -> "CloneBuilder":
        builder = cls._blank()
        builder._place = place
        builder._plan = _Plan(place.root, [_source(source)], wal_store=wal_store)
        return builder

    def with_source(self, source: CloneSourceSpec) -> None:
        """Add a source database."""
        self._require_unused()
        self._plan.sources.append(_source(source))

    def with_clone_path(self, clone_path: str) -> None:
        """Set the path of the clone."""
        self._require_unused()
        with slatedb_errors():
            self._plan.path = normalize_path(clone_path)

    def with_object_store(self, object_store: ObjectStore) -> None:
        """Set the store of the clone and its sources."""
        self._require_unused()
        self._plan.store = self._connected(adapter_of(object_store))

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """Set the store of their WAL, if it is not the administrator's."""
        self._require_unused()
        self._plan.wal_store = self._connected(adapter_of(wal_object_store), store_type="wal")

    def with_projection_range(self, projection_range: KeyRange | None) -> None:
        """Set the keys that the clone shows."""
        self._require_unused()
        self._plan.keys = _keys(projection_range)

    def with_seed(self, seed: int) -> None:
        """Do nothing."""
        self._require_unused()

    @raises_slatedb_errors
    async def build(self) -> None:
        """Create the clone, or finish one that was begun.

        Raises:
            Error: the sources cannot be cloned or united, or the path holds another database.
        """
        self._require_unused()
        plan, place = self._plan, self._place
        plan.is_used = True
        catalog = DatabaseCatalog(
            place.store if plan.store is None else plan.store, place.env, place.metrics, plan.wal_store
        )
        # SlateDB checks neither that ranges are adjacent nor that the WAL has no later rows.
        request = CloneRequest(
            path=plan.path, sources=tuple(plan.sources), keys=plan.keys, allow_gaps=True, allow_wal_gap=True
        )
        await create_clone(catalog, request)

    def _connected(self, adapter: Adapter, *, store_type: str = "main") -> Adapter:
        return connect(adapter, self._place.env, self._place.metrics, component="admin", store_type=store_type)

    def _require_unused(self) -> None:
        if self._plan.is_used:
            raise invalid("builder has already been consumed")


def _source(source: CloneSourceSpec) -> CloneSource:
    checkpoint = None if source.checkpoint is None else parse_checkpoint_id(source.checkpoint)
    with slatedb_errors():
        path = normalize_path(source.path)
    return CloneSource(path=path, checkpoint=checkpoint, keys=_keys(source.projection_range))


def _keys(key_range: KeyRange | None) -> Keys | None:
    return None if key_range is None else Keys.half_open(*bounds_of(key_range))
