"""Check all versions of manifest and compactions: each can be read and satisfies the invariants."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from shale.admin.verify.findings import Findings
from shale.admin.verify.listing import ListedVersion, Listing
from shale.admin.verify.rules import compactions_problems, holes, manifest_problems, step_problems
from shale.admin.verify.tree_steps import HiddenSeqs, VersionSummary, hidden_seqs, tree_step_problems
from shale.concurrency.gather import gather
from shale.errors import CorruptionError
from shale.format.boundary import decode_boundary
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import T, Versioned
from shale.protocol.versioned_store import VersionedStore
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.store.port import ObjectStore
from shale.types import Compactions, Manifest, Tree

HOLES_MAX = 1000
"""Maximum of reported holes."""
_VERSIONS_AT_ONCE = 8
_BYTES_AT_ONCE = 2 * 1024 * 1024
"""A decoded manifest takes about ten times its stored size."""


def without_trees(manifest: Manifest) -> Manifest:
    """Return the manifest without its trees, small enough to keep one for each checkpoint."""
    return replace(manifest, tree=Tree(), segments=())


async def check_manifests(
    objects: ObjectStore,
    store: ManifestStore,
    listing: Listing,
    *,
    latest_id: int,
    wanted: Collection[int],
    findings: Findings,
    use: Callable[[int, Manifest], None],
) -> tuple[int, list[HiddenSeqs]]:
    """Check all manifests; return their number, and what ``hidden_seqs`` finds.

    Args:
        listing: all objects of the database.
        latest_id: id of the newest version, which may have been written after the listing.
        wanted: ids of the versions of checkpoints; GC may delete all others at any time.
        use: called with each wanted version; must not keep its trees.
    """
    path_of, listed = store.namespace.key, listing.manifests
    boundary = await read_boundary(objects, store, listed, findings)
    findings += await _gaps(objects, store, [each.id for each in listed], boundary)
    sizes = {**dict.fromkeys((latest_id, *wanted), 0), **{each.id: each.size for each in listed}}
    before: VersionSummary | None = None
    hidden: list[HiddenSeqs] = []
    async for version_id, manifest in _read_all(store, sorted(sizes.items()), findings):
        path = path_of(version_id)
        if manifest is None:
            if version_id in wanted:
                what = "a checkpoint keeps this version, and it is gone"
                findings.append(Finding(path, what, None, Code.CHECKPOINT_LOST))
            continue
        findings += [
            Finding(path, what, None, code) for code, what in manifest_problems(manifest, version_id, listing.root)
        ]
        if version_id in wanted:
            use(version_id, manifest)
        # Up to the boundary there may be versions that a stale process created and that are ignored.
        if boundary is None or version_id > boundary or version_id in wanted:
            summary = VersionSummary.of(version_id, manifest, without_trees(manifest))
            if before is not None:
                steps = [
                    *step_problems(before.manifest, summary.manifest, before.id),
                    *tree_step_problems(before, summary),
                ]
                findings += [Finding(path, what, None, code) for code, what in steps]
                if (found := hidden_seqs(before, summary, path)) is not None:
                    hidden.append(found)
            before = summary
    return len(sizes), hidden


async def check_compactions(
    objects: ObjectStore, store: CompactionsStore, listed: Sequence[ListedVersion], findings: Findings
) -> tuple[int, Versioned[Compactions] | None]:
    """Check all versions of the compactions file; return their number and the newest readable one."""
    boundary = await read_boundary(objects, store, listed, findings)
    findings += await _gaps(objects, store, [each.id for each in listed], boundary)
    newest: Versioned[Compactions] | None = None
    epoch = 0
    async for version_id, value in _read_all(store, [(each.id, each.size) for each in listed], findings):
        if value is None:
            continue
        path = store.namespace.key(version_id)
        findings += [Finding(path, what, None, code) for code, what in compactions_problems(value)]
        if boundary is None or version_id > boundary:
            if value.compactor_epoch < epoch:
                what = f"compactor_epoch falls from {epoch} to {value.compactor_epoch}"
                findings.append(Finding(path, what, None, Code.VERSION_STEP))
            epoch = value.compactor_epoch
        newest = Versioned(version_id, value)
    if listed and (newest is None or newest.id < listed[-1].id):
        newest = await _later(store, newest)
    return len(listed), newest


async def _later(store: CompactionsStore, known: Versioned[Compactions] | None) -> Versioned[Compactions] | None:
    """Return the newest version if the newest listed one is corrupt or was deleted meanwhile."""
    try:
        latest = await store.try_read_latest()
    except CorruptionError:
        return known
    return latest if latest is not None else known


async def read_boundary(
    objects: ObjectStore, store: VersionedStore[T], listed: Sequence[ListedVersion], findings: Findings
) -> int | None:
    """Return the boundary if it can be read; report one at or above the newest version, which hides that version."""
    path = store.namespace.boundary_key
    got = await objects.get(path)
    if got is None:
        return None
    try:
        boundary = decode_boundary(got.data, path=path)
    except CorruptionError as error:
        findings.append(Finding.of(error, path))
        return None
    highest = listed[-1].id if listed else 0
    if boundary and boundary >= highest:
        # Both may have advanced since the listing, but a boundary only advances below an existing version.
        now = await store.list_versions()
        highest = now[-1].id if now else 0
        if boundary >= highest:
            what = f"it stands at {boundary}, and the newest version is {highest}"
            findings.append(Finding(path, what, None, Code.BOUNDARY))
    return boundary


async def _gaps(
    objects: ObjectStore, store: VersionedStore[T], ids: Sequence[int], boundary: int | None
) -> list[Finding]:
    """Report missing versions above the boundary; without a boundary file GC may have deleted any version."""
    if boundary is None:
        return []
    found: list[Finding] = []
    for first, last in holes(ids, boundary + 1):
        path = store.namespace.key(first)
        if len(found) < HOLES_MAX and await objects.head(path) is None:
            what = f"it is gone{up_to(first, last)}, and the boundary stands at {boundary}"
            found.append(Finding(path, what, None, Code.VERSION_GAP))
    return found


def up_to(first: int, last: int) -> str:
    """Return the text for the rest of a hole."""
    return "" if first == last else f", and so are all after it up to {last}"


async def _read_all(
    store: VersionedStore[T], versions: Sequence[tuple[int, int]], findings: Findings
) -> AsyncIterator[tuple[int, T | None]]:
    """Yield each readable version, and ``None`` for missing ones; unreadable ones become findings.

    Args:
        versions: ids and sizes; small versions are read concurrently.
    """
    start = 0
    while start < len(versions):
        end, filled = start + 1, versions[start][1]
        while end < min(len(versions), start + _VERSIONS_AT_ONCE) and filled + versions[end][1] <= _BYTES_AT_ONCE:
            filled += versions[end][1]
            end += 1
        some = [version_id for version_id, _ in versions[start:end]]
        found = await gather([partial(_read, store, version_id) for version_id in some])
        start = end
        found.reverse()
        for version_id in some:
            value = found.pop()
            if isinstance(value, CorruptionError):
                findings.append(Finding.of(value, store.namespace.key(version_id)))
            else:
                yield version_id, value


async def _read(store: VersionedStore[T], version_id: int) -> T | CorruptionError | None:
    try:
        return await store.read(version_id)
    except CorruptionError as error:
        return error
