"""GC of temporaries in the directories of numbered files: what a dead process left beside its objects.

Staged objects of the two-phase mode are deleted once their record can no longer be inserted; no age proves that.
Other temporaries have the name of a numbered file with something after it, for example
``00000000000000000007.manifest.tmp`` of a copying tool, or a staged object of a database that was moved to native
creates.  Nothing reads them, so they go by age.  So do the files ``<name>#<n>`` that a killed process left in a
directory on this machine, also beside SSTs, records and boundaries; listings of objects leave them out.  So do the
scratch objects of a daemon that was killed at its start.  Objects with any other name are kept: they may be someone's
own.

Source: docs/reference/protocol.md 8, 12.6.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from shale.errors import ShaleError
from shale.format.names import (
    compacted_prefix,
    compaction_records_prefix,
    compactions_prefix,
    gc_prefix,
    manifest_prefix,
    preflight_prefix,
    wal_prefix,
)
from shale.gc.database import GcDatabase
from shale.gc.options import STAGED_MIN_AGE_S
from shale.gc.passes import Pass
from shale.gc.plan import Candidate
from shale.store.port import ObjectMeta, ObjectStore
from shale.store.retry import RetryingStore
from shale.store.two_phase.names import parse_staged_key
from shale.store.two_phase.recovery import staged_orphans
from shale.store.two_phase.store import two_phase_of
from shale.store.wrapper import staging_files_of

WHY = "a temporary that nothing completes"
_TEMPORARY = re.compile(r"[0-9]{20}\.(manifest|compactions|sst)[.#][^/]+")


async def sweep_staged(database: GcDatabase, this: Pass) -> None:
    """Delete orphaned staged objects, and other temporaries older than ``min_age``, which is at least a day."""
    await this.execute(_candidates(database, this), partial(_delete, database), why=WHY)


def is_temporary(prefix: str, key: str) -> bool:
    """Return whether a key in the directory ``prefix`` is the name of a numbered file with something after it."""
    found = _TEMPORARY.fullmatch(key, len(prefix))
    return found is not None and prefix.endswith(f"{_DIRECTORIES[found[1]]}/")


_DIRECTORIES = {"manifest": "manifest", "compactions": "compactions", "sst": "wal"}


async def _candidates(database: GcDatabase, this: Pass) -> AsyncIterator[Sequence[Candidate]]:
    min_age_ms = max(this.options.min_age_ms, int(STAGED_MIN_AGE_S * 1000))
    for prefix_of in (compacted_prefix, compaction_records_prefix, gc_prefix):
        yield await _staging_files(database.store, prefix_of(database.root), this, min_age_ms)
    async for page in database.store.list_pages(preflight_prefix(database.root)):
        this.count_listed(page)
        yield [_candidate(meta) for meta in page if this.now_ms - meta.last_modified_ms > min_age_ms]
    for store, prefix in (
        (database.store, manifest_prefix(database.root)),
        (database.store, compactions_prefix(database.root)),
        (database.wal_store, wal_prefix(database.root)),
    ):
        yield await _staging_files(store, prefix, this, min_age_ms)
        # The store of the two-phase mode leaves its staged objects out of this listing.
        async for page in store.list_pages(prefix):
            this.count_listed(page)
            yield [
                _candidate(meta)
                for meta in page
                if is_temporary(prefix, meta.key) and this.now_ms - meta.last_modified_ms > min_age_ms
            ]
        if two_phase_of(store) is not None:
            retrying = store if isinstance(store, RetryingStore) else RetryingStore(store, database.env)
            orphans = staged_orphans(retrying, prefix, now_ms=this.now_ms, min_age_ms=min_age_ms)
            async for page in orphans:
                this.count_listed(page)
                yield [_candidate(meta) for meta in page]


async def _staging_files(store: ObjectStore, prefix: str, this: Pass, min_age_ms: int) -> Sequence[Candidate]:
    staging = staging_files_of(store)
    found = [] if staging is None else await staging.list_staging(prefix)
    this.count_listed(found)
    return [_candidate(meta) for meta in found if this.now_ms - meta.last_modified_ms > min_age_ms]


def _candidate(meta: ObjectMeta) -> Candidate:
    return Candidate(0, meta.key, meta.size, meta.last_modified_ms)


async def _delete(database: GcDatabase, candidates: Sequence[Candidate]) -> Mapping[str, ShaleError]:
    """Delete temporaries; return the errors by key."""
    in_wal = wal_prefix(database.root)
    wal = [each.key for each in candidates if each.key.startswith(in_wal)]
    others = [each.key for each in candidates if not each.key.startswith(in_wal)]
    errors: dict[str, ShaleError] = {}
    for store, keys in ((database.wal_store, wal), (database.store, others)):
        if keys:
            errors.update(await store.delete_many(keys))
            _count_orphans(database, store, [key for key in keys if key not in errors])
    return errors


def _count_orphans(database: GcDatabase, store: ObjectStore, gone: Sequence[str]) -> None:
    if two_phase_of(store) is not None:
        orphans = sum(parse_staged_key(key) is not None for key in gone)
        database.metrics.counter("slatedb_two_phase_orphans_deleted_total").inc(orphans)
