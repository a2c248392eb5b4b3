"""Paths of SSTs: under the database's root, or under the database that a clone borrows them from."""

from collections.abc import Iterable

from shale.format.names import sst_key
from shale.types import ExternalDb, Manifest, Ulid


class SstPaths:
    """Resolves ids of SSTs for one manifest; made anew when ``external_dbs`` changes.

    Source: docs/reference/protocol.md 10.4.
    """

    __slots__ = ("_borrowed", "root")

    def __init__(self, root: str, external_dbs: Iterable[ExternalDb] = ()) -> None:
        self.root = root
        self._borrowed = {sst_id: external.path for external in external_dbs for sst_id in external.sst_ids}

    @classmethod
    def of(cls, root: str, manifest: Manifest) -> "SstPaths":
        """Return the paths of a manifest of the database at ``root``."""
        return cls(root, manifest.external_dbs)

    def key(self, sst_id: Ulid) -> str:
        """Return the key of the object that holds an SST."""
        return sst_key(self._borrowed.get(sst_id, self.root), sst_id)
