"""Check the databases that a clone borrows from: they exist and hold its checkpoints.

Source: docs/reference/protocol.md 10.2, 10.3 and Appendix B 13.
"""

from collections.abc import Iterable

from shale.admin.verify.versions import without_trees
from shale.env import Env
from shale.errors import CorruptionError
from shale.format.names import manifest_prefix
from shale.protocol.manifest_store import ManifestStore
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.store.port import ObjectStore
from shale.types import ExternalDb, Manifest


async def check_borrowing(store: ObjectStore, counted: Iterable[Manifest], env: Env) -> list[Finding]:
    """Check each database that a version reads SSTs from, once for each checkpoint in it.

    Args:
        counted: the newest manifest and those of checkpoints; half-built ones have no checkpoints yet.
    """
    borrowed = {
        (external.path, external.final_checkpoint_id): external
        for manifest in counted
        if manifest.initialized
        for external in manifest.external_dbs
        if external.sst_ids
    }
    found: list[Finding] = []
    parents: dict[str, Manifest | None] = {}
    for external in borrowed.values():
        place = manifest_prefix(external.path)
        if external.path not in parents:
            parents[external.path] = None
            try:
                latest = await ManifestStore(store, external.path, env).try_read_latest()
            except CorruptionError as error:
                found.append(Finding.of(error, place))
                continue
            if latest is None:
                what = f"{len(external.sst_ids)} SSTs are borrowed from this database, and it is gone"
                found.append(Finding(place, what, None, Code.PARENT_MISSING))
                continue
            parents[external.path] = without_trees(latest.value)
        parent = parents[external.path]
        if parent is not None:
            found += _pin_findings(parent, external, place)
    return found


def _pin_findings(parent: Manifest, external: ExternalDb, place: str) -> list[Finding]:
    entry = parent.checkpoint(external.final_checkpoint_id) if external.final_checkpoint_id is not None else None
    if entry is None:
        what = f"checkpoint {external.final_checkpoint_id} is not there, which keeps {len(external.sst_ids)} SSTs"
        return [Finding(place, what, None, Code.PIN_MISSING)]
    if entry.expire_s:
        what = f"checkpoint {entry.id}, which keeps {len(external.sst_ids)} SSTs, ends by itself"
        return [Finding(place, what, None, Code.PIN_EXPIRES)]
    return []
