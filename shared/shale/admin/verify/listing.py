"""What lies below a database's root, read page by page before anything else: ids and sizes, and names of nobody's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shale.format.names import (
    COMPACTIONS_SUFFIX,
    MANIFEST_SUFFIX,
    boundary_key,
    compacted_prefix,
    compactions_prefix,
    deleting_key,
    destroyed_key,
    manifest_prefix,
    parse_compactions_key,
    parse_manifest_key,
    parse_sst_key,
    parse_wal_key,
    wal_prefix,
)
from shale.protocol.wal_store import WalFile
from shale.store.port import ObjectMeta, ObjectStore
from shale.types import Ulid

STRAYS_MAX = 1000


@dataclass(frozen=True, slots=True)
class ListedSst:
    """An SST as a listing shows it."""

    id: Ulid
    size: int


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A manifest or compactions file as a listing shows it."""

    id: int
    size: int


@dataclass(frozen=True, slots=True)
class Stray:
    """An object whose name means nothing to anybody here; ``resource``: whose namespace it lies in, if in one."""

    key: str
    size: int
    resource: str | None = None
    is_staged: bool = False


@dataclass(slots=True)
class Listing:
    """Ascending by id.  Of strays at most ``STRAYS_MAX`` are kept; ``stray_count`` and ``stray_bytes`` are of all."""

    root: str
    manifests: list[ListedVersion] = field(default_factory=list)
    compactions: list[ListedVersion] = field(default_factory=list)
    ssts: list[ListedSst] = field(default_factory=list)
    wal: list[WalFile] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)
    stray_count: int = 0
    stray_bytes: int = 0
    objects: int = 0

    def add(self, page: Sequence[ObjectMeta], *, only_wal: bool = False) -> None:
        """Sort the objects of a page into their namespaces."""
        known = {boundary_key(self.root, name) for name in ("manifest", "compactions")}
        known |= {deleting_key(self.root), destroyed_key(self.root)}
        for meta in page:
            self.objects += 1
            if not (self._take_wal(meta) if only_wal else self._take(meta)) and meta.key not in known:
                self._take_stray(meta)

    def _take(self, meta: ObjectMeta) -> bool:
        if (sst_id := parse_sst_key(self.root, meta.key)) is not None:
            self.ssts.append(ListedSst(sst_id, meta.size))
        elif (manifest_id := parse_manifest_key(self.root, meta.key)) is not None:
            self.manifests.append(ListedVersion(manifest_id, meta.size))
        elif (compactions_id := parse_compactions_key(self.root, meta.key)) is not None:
            self.compactions.append(ListedVersion(compactions_id, meta.size))
        else:
            return self._take_wal(meta)
        return True

    def _take_wal(self, meta: ObjectMeta) -> bool:
        wal_id = parse_wal_key(self.root, meta.key)
        if wal_id is None:
            return False
        self.wal.append(WalFile(wal_id, meta.size, meta.last_modified_ms))
        return True

    def _take_stray(self, meta: ObjectMeta) -> None:
        self.stray_count += 1
        self.stray_bytes += meta.size
        if len(self.strays) < STRAYS_MAX:
            places = {
                "manifest": manifest_prefix(self.root),
                "compactions": compactions_prefix(self.root),
                "compacted": compacted_prefix(self.root),
                "wal": wal_prefix(self.root),
            }
            resource = next((name for name, prefix in places.items() if meta.key.startswith(prefix)), None)
            self.strays.append(Stray(meta.key, meta.size, resource, is_staged="#" in meta.key))


async def list_database(store: ObjectStore, wal_store: ObjectStore | None, root: str) -> Listing:
    """List everything below the root, and below its WAL if that is in a store of its own."""
    listing = Listing(root)
    async for page in store.list_pages(f"{root}/" if root else ""):
        listing.add(page)
    if wal_store is not None:
        listing.wal.clear()
        async for page in wal_store.list_pages(wal_prefix(root)):
            listing.add(page, only_wal=True)
    for each in (listing.manifests, listing.compactions, listing.ssts, listing.wal):
        each.sort(key=lambda item: item.id)
    return listing


def hangs_slatedb(stray: Stray) -> bool:
    """Whether SlateDB takes the name for a version, and then finds nothing under the canonical one."""
    suffix = {"manifest": MANIFEST_SUFFIX, "compactions": COMPACTIONS_SUFFIX}.get(stray.resource or "")
    if suffix is None or not stray.key.endswith(suffix):
        return False
    stem = stray.key.rpartition("/")[2].partition(".")[0]
    return stem.isascii() and stem.isdigit()
