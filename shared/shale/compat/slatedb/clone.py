"""``CloneBuilder``: checks what it is told; clones themselves are not available yet (docs/compat.md)."""

from shale.compat.slatedb.arguments import checked_range
from shale.compat.slatedb.errors import invalid, translates
from shale.compat.slatedb.handles import Handle, checkpoint_id_of
from shale.compat.slatedb.options import CloneSourceSpec
from shale.compat.slatedb.store import ObjectStore, adapter_of
from shale.compat.slatedb.values import KeyRange


class CloneBuilder(Handle):
    """Made by ``Admin.create_clone_builder_from_source``; used up by ``build``."""

    __slots__ = ("_is_used",)

    _is_used: bool

    @classmethod
    def _of(cls, source: CloneSourceSpec) -> "CloneBuilder":
        _check(source)
        builder = cls._blank()
        builder._is_used = False
        return builder

    def with_source(self, source: CloneSourceSpec) -> None:
        """One more database that the clone begins with."""
        self._require_unused()
        _check(source)

    def with_clone_path(self, clone_path: str) -> None:
        """Where the clone is made."""
        self._require_unused()

    def with_object_store(self, object_store: ObjectStore) -> None:
        """The store of the clone."""
        self._require_unused()
        adapter_of(object_store)

    def with_wal_object_store(self, wal_object_store: ObjectStore) -> None:
        """The store of the clone's WAL."""
        self._require_unused()
        adapter_of(wal_object_store)

    def with_projection_range(self, projection_range: KeyRange | None) -> None:
        """The keys that the clone shows."""
        self._require_unused()
        if projection_range is not None:
            checked_range(projection_range)

    def with_seed(self, seed: int) -> None:
        """Has no effect."""
        self._require_unused()

    @translates
    async def build(self) -> None:
        """Make the clone.

        Raises:
            Error: always; Shale makes no clones yet.
        """
        self._require_unused()
        self._is_used = True
        raise invalid("clones are not available")

    def _require_unused(self) -> None:
        if self._is_used:
            raise invalid("builder has already been consumed")


def _check(source: CloneSourceSpec) -> None:
    if source.checkpoint is not None:
        checkpoint_id_of(source.checkpoint)
    if source.projection_range is not None:
        checked_range(source.projection_range)
