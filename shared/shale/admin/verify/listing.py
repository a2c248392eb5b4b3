"""List all objects below a database's root, by namespace, including unknown names."""

from collections.abc import Sequence
from dataclasses import field

from shale.admin.verify.packed_list import PackedList
from shale.core.lazy_dataclass import dataclass
from shale.format.names import (
    COMPACTIONS_SUFFIX,
    MANIFEST_SUFFIX,
    boundary_key,
    compacted_prefix,
    compaction_records_prefix,
    compactions_prefix,
    deleting_key,
    destroyed_key,
    gc_prefix,
    manifest_prefix,
    parse_attempt_range_key,
    parse_compaction_record_key,
    parse_compactions_key,
    parse_manifest_key,
    parse_sst_key,
    parse_wal_key,
    preflight_prefix,
    visible_range_key,
    wal_prefix,
)
from shale.gc.staged import is_temporary
from shale.protocol.wal_store import WalFile
from shale.store.port import ObjectMeta, ObjectStore
from shale.types import Ulid, WalId

STRAYS_MAX = 1000
_PREFIXES = (manifest_prefix, compactions_prefix, compacted_prefix, wal_prefix, compaction_records_prefix, gc_prefix)


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
    """An object with an unknown name.

    ``resource``: the namespace that it is in, if any.  ``is_staged``: a temporary, which GC deletes by age.
    """

    key: str
    size: int
    resource: str | None = None
    is_staged: bool = False


def _packed_ssts() -> PackedList[ListedSst]:
    return PackedList(
        lambda sst: (sst.id >> 64, sst.id & 2**64 - 1, sst.size),
        lambda high, low, size: ListedSst(Ulid(high << 64 | low), size),
    )


def _packed_wal() -> PackedList[WalFile]:
    return PackedList(
        lambda file: (file.id, file.size, max(0, file.last_modified_ms)),
        lambda wal_id, size, last_modified_ms: WalFile(WalId(wal_id), size, last_modified_ms),
    )


@dataclass(slots=True)
class Listing:
    """All objects of a database, ascending by id in each namespace.

    At most ``STRAYS_MAX`` strays are listed; ``strays_left_out`` has number and bytes of the others, by ``is_staged``.
    ``hanging``: strays that SlateDB takes for versions, at most ``STRAYS_MAX``.
    """

    root: str
    manifests: list[ListedVersion] = field(default_factory=list)
    compactions: list[ListedVersion] = field(default_factory=list)
    ssts: PackedList[ListedSst] = field(default_factory=_packed_ssts)
    wal: PackedList[WalFile] = field(default_factory=_packed_wal)
    strays: list[Stray] = field(default_factory=list)
    strays_left_out: dict[bool, tuple[int, int]] = field(default_factory=dict)
    hanging: list[Stray] = field(default_factory=list)
    objects: int = 0

    def add(self, page: Sequence[ObjectMeta], *, only_wal: bool = False) -> None:
        """Add the objects of a page to their namespaces."""
        known = {boundary_key(self.root, name) for name in ("manifest", "compactions")}
        known |= {deleting_key(self.root), destroyed_key(self.root), visible_range_key(self.root)}
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
        elif parse_compaction_record_key(self.root, meta.key) is None:
            return parse_attempt_range_key(self.root, meta.key) is not None or self._take_wal(meta)
        return True

    def _take_wal(self, meta: ObjectMeta) -> bool:
        wal_id = parse_wal_key(self.root, meta.key)
        if wal_id is None:
            return False
        self.wal.append(WalFile(wal_id, meta.size, meta.last_modified_ms))
        return True

    def _take_stray(self, meta: ObjectMeta) -> None:
        prefixes = (prefix_of(self.root) for prefix_of in _PREFIXES)
        prefix = next((prefix for prefix in prefixes if meta.key.startswith(prefix)), None)
        resource = None if prefix is None else prefix.rstrip("/").rpartition("/")[2]
        stray = Stray(meta.key, meta.size, resource, is_staged=self._is_staged(meta.key, prefix))
        if hangs_slatedb(stray) and len(self.hanging) < STRAYS_MAX:
            self.hanging.append(stray)
        if len(self.strays) < STRAYS_MAX:
            self.strays.append(stray)
        else:
            count, size = self.strays_left_out.get(stray.is_staged, (0, 0))
            self.strays_left_out[stray.is_staged] = (count + 1, size + stray.size)

    def _is_staged(self, key: str, prefix: str | None) -> bool:
        if prefix is None:
            return key.startswith(preflight_prefix(self.root))
        return "#" in key or is_temporary(prefix, key)


async def list_database(store: ObjectStore, wal_store: ObjectStore | None, root: str) -> Listing:
    """List all objects below the root, and in the WAL's own store if separate."""
    listing = Listing(root)
    async for page in store.list_pages(f"{root}/" if root else ""):
        listing.add(page)
    if wal_store is not None:
        listing.wal.clear()
        async for page in wal_store.list_pages(wal_prefix(root)):
            listing.add(page, only_wal=True)
    for versions in (listing.manifests, listing.compactions):
        versions.sort(key=lambda version: version.id)
    listing.ssts.sort()
    listing.wal.sort()
    return listing


def hangs_slatedb(stray: Stray) -> bool:
    """Return whether SlateDB takes the name for a version and then finds no object under the canonical name."""
    suffix = {"manifest": MANIFEST_SUFFIX, "compactions": COMPACTIONS_SUFFIX}.get(stray.resource or "")
    if suffix is None or not stray.key.endswith(suffix):
        return False
    stem = stray.key.rpartition("/")[2].partition(".")[0]
    return stem.isascii() and stem.isdigit()
