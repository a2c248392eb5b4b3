"""Counts for ``shale db size``: objects below the path of the database by kind, and the SSTs in use."""

from typing import Any

from shale.core.lazy_dataclass import dataclass
from shale_cli.framework.session import CliSession

COLUMNS = ("kind", "objects", "bytes", "used_objects", "used_bytes")


@dataclass(slots=True)
class _Sum:
    objects: int = 0
    bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.objects += 1
        self.bytes += size_bytes


async def count_objects(session: CliSession) -> list[dict[str, Any]]:
    """Return one item per kind in a fixed order, and the total at the end.

    ``used_…`` counts SSTs that the latest manifest names: those in the database's own directory, and as kind
    ``borrowed`` those of external databases, which the total does not include.

    Raises:
        LatestRecordMissing: the database does not exist.
    """
    from shale.format.names import below, parse_sst_key, wal_prefix
    from shale.protocol.manifest_store import ManifestStore
    from shale_cli.framework.output.progress import progress

    kinds = {kind: _Sum() for kind in ("manifest", "compactions", "wal", "compacted", "gc", "other")}
    used, borrowed, total = _Sum(), _Sum(), _Sum()
    async with session.open_store() as store, session.open_wal_store(store) as wal_store:
        manifest = (await ManifestStore(store, session.path, session.env).read_latest()).value
        external = {sst_id for each in manifest.external_dbs for sst_id in each.sst_ids}
        named = manifest.ssts()
        for sst_id in named.keys() & external:
            borrowed.add(named[sst_id].estimated_size_bytes)
        root = below(session.path, "")
        with progress(session.output, session.env.clock, "listed", "objects") as on_progress:
            async for page in store.list_pages(root):
                for each in page:
                    directory, slash, _ = each.key.removeprefix(root).partition("/")
                    kinds[directory if slash and directory in kinds else "other"].add(each.size)
                    total.add(each.size)
                    if parse_sst_key(session.path, each.key) in named:
                        used.add(each.size)
                on_progress(total.objects)
            if wal_store is not store:
                async for page in wal_store.list_pages(wal_prefix(session.path)):
                    for each in page:
                        kinds["wal"].add(each.size)
                        total.add(each.size)
    items = [_item(kind, found, used if kind == "compacted" else None) for kind, found in kinds.items()]
    if borrowed.objects:
        items.append(_item("borrowed", borrowed, borrowed))
    return [*items, _item("total", total, None)]


def _item(kind: str, found: _Sum, used: _Sum | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "objects": found.objects,
        "bytes": found.bytes,
        "used_objects": None if used is None else used.objects,
        "used_bytes": None if used is None else used.bytes,
    }
