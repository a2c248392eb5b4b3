"""Finds SSTs in a manifest and reads their rows."""

from typing import TYPE_CHECKING, Any

from shale.admin.json_values import b64
from shale.errors import InvalidRequestError, NotFoundError
from shale.types import KeyRange, Manifest, SstView, Ulid, excluded, included
from shale.types.ranges import UNBOUNDED, key_after_prefix
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shale.kernels.rows import Rows
    from shale.store.port import ObjectStore

COLUMNS = ("id", "place", "bytes", "first_key", "last_key", "is_cut")


async def load_manifest(session: CliSession, store: "ObjectStore", manifest_id: int | None = None) -> Manifest:
    """Read the latest manifest, or a version.

    Raises:
        LatestRecordMissing: the database does not exist.
        NotFoundError: the version does not exist.
    """
    from shale.protocol.manifest_store import ManifestStore

    manifests = ManifestStore(store, session.path, session.env)
    if manifest_id is None:
        return (await manifests.read_latest()).value
    found = await manifests.read(manifest_id)
    if found is None:
        raise NotFoundError(f"{session.location.url}: no version {manifest_id} of manifest is stored")
    return found


def sst_items(session: CliSession, manifest: Manifest) -> list[dict[str, Any]]:
    """Return one item per view."""
    from shale.sst.paths import SstPaths

    paths = SstPaths.of(session.path, manifest)
    items = []
    for prefix, tree in manifest.trees():
        places = [("l0", view) for view in tree.l0]
        places += [(f"sr {run.id}", view) for run in tree.compacted for view in run.ssts]
        items += [_item(session.output, prefix, place, view, paths.key(view.sst.id)) for place, view in places]
    return items


def find_sst(session: CliSession, manifest: Manifest, sst_id: str) -> tuple[SstView, str]:
    """Return the first view of an SST, found by the id of the SST or of the view, and the key of its object.

    Raises:
        InvalidRequestError: the id is not a ULID.
        NotFoundError: the manifest does not contain the SST.
    """
    from shale.sst.paths import SstPaths

    wanted = Ulid.parse(sst_id)
    if wanted is None:
        raise InvalidRequestError(f"{sst_id!r} is not a ULID")
    view = next((each for each in manifest.views() if wanted in (each.sst.id, each.id)), None)
    if view is None:
        raise NotFoundError(f"{session.location.url}: the manifest does not contain SST {sst_id}; see `shale sst list`")
    return view, SstPaths.of(session.path, manifest).key(view.sst.id)


def key_range(output: Output, prefix: str | None, start: str | None, stop: str | None) -> KeyRange:
    """Return the key range of these options.

    Raises:
        InvalidRequestError: a key is not in the key format.
    """
    wanted = KeyRange(
        UNBOUNDED if start is None else included(output.parse(start)),
        UNBOUNDED if stop is None else excluded(output.parse(stop)),
    )
    if prefix is None:
        return wanted
    first = output.parse(prefix)
    after = key_after_prefix(first)
    return wanted.intersect(KeyRange(included(first), UNBOUNDED if after is None else excluded(after)))


async def rows_of(
    session: CliSession, store: "ObjectStore", manifest: Manifest, sst_id: str, wanted: KeyRange, *, whole: bool
) -> "AsyncIterator[Rows]":
    """Yield the stored rows of an SST in chunks: those in its views, or all with ``whole``.

    Raises:
        CorruptionError: the SST is missing or damaged.
    """
    from shale.sst.cache import BlockCache
    from shale.sst.paths import SstPaths
    from shale.sst.reader import SstReader
    from shale.sst.source import SstViewsSource

    first, _ = find_sst(session, manifest, sst_id)
    views = [SstView.identity(first.sst)]
    if not whole:
        shown = {view.effective_range: view for view in manifest.views() if view.sst.id == first.sst.id}
        views = sorted(shown.values(), key=lambda view: view.effective_range.start.key or b"")
    reader = SstReader(
        store,
        SstPaths.of(session.path, manifest),
        BlockCache(16 << 20),
        session.env,
        with_filters=False,
        transformer=session.block_transformer,
    )
    source = SstViewsSource(reader, views, wanted, cache_blocks=False)
    try:
        while (rows := await source.next()) is not None:
            yield rows
    finally:
        reader.close()


def _item(output: Output, prefix: bytes, place: str, view: SstView, key: str) -> dict[str, Any]:
    info = view.sst.info
    data: dict[str, Any] = {
        "id": str(view.sst.id),
        "view_id": str(view.id),
        "segment_b64": b64(prefix),
        "place": place,
        "bytes": view.sst.estimated_size_bytes,
        "first_key_b64": None if info.first_entry is None else b64(info.first_entry),
        "last_key_b64": None if info.last_entry is None else b64(info.last_entry),
        "is_cut": view.visible_range is not None,
        "compression": info.compression.name.lower(),
        "object": key,
    }
    if output.is_human_readable:
        where = f"{place} of {output.show(prefix)}" if prefix else place
        first = None if info.first_entry is None else output.show(info.first_entry)
        last = None if info.last_entry is None else output.show(info.last_entry)
        data |= {"place": where, "first_key": first, "last_key": last}
    return data
