"""Store compaction requests for the coordinator (docs/reference/protocol.md 6.13).

No epoch is claimed and no process is fenced: entries are added to the newest version, with retries after conflicts.
The ids are generated once, so a write whose response was lost is recognized.
"""

from collections.abc import Callable

from shale.compaction.entries import with_entries
from shale.compaction.requests import CompactionRequest
from shale.compaction.specs import describe
from shale.compaction.submission import plan_submission
from shale.env import Env
from shale.errors import InvalidDbState, ObjectVersionExists
from shale.protocol.compactions_store import CompactionsStore, StoredCompactions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Compaction, Compactions, Manifest, Ulid

log = get_logger("admin")

Submission = tuple[tuple[Compaction, ...], Manifest]
"""The entries, and the manifest that they were checked against."""


async def submit(
    manifests: ManifestStore,
    compactions: CompactionsStore,
    env: Env,
    request: CompactionRequest,
    *,
    dry_run: bool = False,
) -> Submission:
    """Validate a request and store its entries as Submitted in one version; with ``dry_run`` only validate it.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: it is half built, or no coordinator was ever started on it.
        InvalidCompaction: a rule is broken in the current state.
    """
    ids = _ids(env)
    stored = await load_compactions(manifests, compactions, env)
    conflicts = 0
    tried: Compactions | None = None
    while True:
        base = stored.prepare_dirty()
        # The manifest must be read after the compactions: it then has all results that they call finished.
        manifest = await read_manifest(manifests)
        landed = _landed(tried, ids) if tried is not None else ()
        if landed:
            return landed, manifest
        entries = plan_submission(manifest, base.value, request, ids)
        if dry_run or not entries:
            return entries, manifest
        try:
            await stored.update(Versioned(base.id, with_entries(base.value, entries)))
        except ObjectVersionExists:
            conflicts += 1
            newest = await stored.recover(conflicts)
            # The newest version may no longer have entries that were completed at once.
            tried = await _committed(compactions, base.id + 1) or newest.value
        else:
            for entry in entries:
                log.info(Event.COMPACTION_SUBMITTED, compaction_id=str(entry.id), spec=describe(entry.spec))
            return entries, manifest


async def load_compactions(manifests: ManifestStore, compactions: CompactionsStore, env: Env) -> StoredCompactions:
    """Load the newest compactions for a change.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: no coordinator was ever started on it.
    """
    latest = await compactions.try_read_latest()
    if latest is None:
        await manifests.read_latest()
        raise InvalidDbState(
            f"there is no compactions file below {compactions.namespace.directory}: start a compactor once"
        )
    return Stored(compactions, latest, env)


async def read_manifest(manifests: ManifestStore) -> Manifest:
    """Read the newest manifest of a complete database.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: it is a clone that was not completed.
    """
    manifest = (await manifests.read_latest()).value
    if not manifest.initialized:
        raise InvalidDbState(f"the database at {manifests.namespace.directory} is not initialised")
    return manifest


def _ids(env: Env) -> Callable[[int], Ulid]:
    drawn: list[Ulid] = []

    def id_of(index: int) -> Ulid:
        while len(drawn) <= index:
            drawn.append(env.ids.ulid())
        return drawn[index]

    return id_of


async def _committed(compactions: CompactionsStore, file_id: int) -> Compactions | None:
    """Return an old version, unless a suspended process created it after GC had deleted the ids up to it."""
    value = await compactions.read(file_id)
    return value if file_id > await compactions.boundary() else None


def _landed(compactions: Compactions, id_of: Callable[[int], Ulid]) -> tuple[Compaction, ...]:
    """Return this call's entries, if its write succeeded although the response was lost."""
    found: list[Compaction] = []
    while (entry := compactions.get(id_of(len(found)))) is not None:
        found.append(entry)
    return tuple(found)
