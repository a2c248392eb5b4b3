"""Every version of manifest and compactions file: whether it can be read, and keeps the rules."""

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial

from shale.admin.verify.manifest_rules import manifest_problems
from shale.errors import CorruptionError
from shale.format.boundary import decode_boundary
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import T
from shale.protocol.versioned_store import VersionedStore
from shale.sst.verify.finding import Finding
from shale.store.gather import gather
from shale.store.port import ObjectStore
from shale.types import Compactions, Manifest

_VERSIONS_AT_ONCE = 8


async def check_manifests(
    store: ManifestStore, wanted: Collection[int], findings: list[Finding]
) -> tuple[int, dict[int, Manifest]]:
    """Read every version; how many there are, and those that are wanted, by id.

    Args:
        wanted: ids of versions that checkpoints keep; all others may be collected at any time.
    """
    listed = [meta.id for meta in await store.list_versions()]
    kept: dict[int, Manifest] = {}
    async for version_id, manifest in _read_all(store, sorted({*listed, *wanted}), findings):
        path = store.namespace.key(version_id)
        if manifest is None:
            if version_id in wanted:
                findings.append(Finding(path, "a checkpoint keeps this version, and it is gone"))
            continue
        findings += [Finding(path, what) for what in manifest_problems(manifest, version_id)]
        if version_id in wanted:
            kept[version_id] = manifest
    return len(listed), kept


async def check_compactions(
    objects: ObjectStore, store: CompactionsStore, findings: list[Finding]
) -> tuple[int, Compactions | None]:
    """Read every version of the compactions file; how many there are, and the newest that can be read."""
    listed = [meta.id for meta in await store.list_versions()]
    newest: Compactions | None = None
    async for version_id, value in _read_all(store, listed, findings):
        if value is None:
            continue
        newest = value
        ids = [entry.id for entry in value.entries]
        if ids != sorted(set(ids)):
            findings.append(Finding(store.namespace.key(version_id), "its entries do not ascend by id"))
    if listed:
        await check_boundary(objects, store.namespace.boundary_key, listed[-1], findings)
    return len(listed), newest


async def check_boundary(store: ObjectStore, path: str, highest_id: int, findings: list[Finding]) -> None:
    """A boundary stays below the newest version, or nobody can find that."""
    got = await store.get(path)
    if got is None:
        return
    try:
        boundary = decode_boundary(got.data, path=path)
    except CorruptionError as error:
        findings.append(Finding.of(error, path))
        return
    if boundary >= highest_id:
        findings.append(Finding(path, f"it stands at {boundary}, and the newest version is {highest_id}"))


async def _read_all(
    store: VersionedStore[T], ids: Sequence[int], findings: list[Finding]
) -> AsyncIterator[tuple[int, T | None]]:
    """Each version that can be read, ``None`` for those that are gone; the others are findings."""
    for start in range(0, len(ids), _VERSIONS_AT_ONCE):
        some = ids[start : start + _VERSIONS_AT_ONCE]
        found = await gather([partial(_read, store, version_id) for version_id in some])
        for version_id, value in zip(some, found, strict=True):
            if isinstance(value, CorruptionError):
                findings.append(Finding.of(value, store.namespace.key(version_id)))
            else:
                yield version_id, value


async def _read(store: VersionedStore[T], version_id: int) -> T | CorruptionError | None:
    try:
        return await store.read(version_id)
    except CorruptionError as error:
        return error
