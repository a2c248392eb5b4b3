"""Submit, list, await and cancel compactions (docs/reference/protocol.md 6.13)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio

from shale.admin.retained import CompactionsHistory, ManifestHistory
from shale.admin.submission import load_compactions, read_manifest, submit
from shale.compaction.cancel import TooLateToCancel, with_cancelled
from shale.compaction.history import CompactionLifecycle, CompactionsVersion, VersionHistory, all_ids, lifecycle_of
from shale.compaction.outcome import failure_reason, outcome
from shale.compaction.records import CompactionKind, CompactionRecord, request_again
from shale.compaction.requests import CompactionRequest
from shale.compaction.specs import inputs_of
from shale.compaction.status import CompactionInfo, compaction_info, entry_of, with_record
from shale.concurrency.signal import WakeEvent
from shale.env import Env
from shale.errors import ConflictError, InvalidRequestError, NotFoundError, ObjectVersionExists
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.options import ProtocolOptions
from shale.protocol.versioned import Versioned
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionStatus, Manifest, SstView, Ulid

POLL_INTERVAL_S = 1.0
RECORDS_LISTED_MAX = 200
"""Each costs a request."""
OnProgress = Callable[[CompactionInfo], None]


class CancelIgnored(ConflictError):
    """The coordinator restored its own copy of the entry, as SlateDB's does: the compaction continues."""

    retryable = False


class NotFailed(InvalidRequestError):
    """Only a failed compaction can be retried."""


class CompactionAdmin:
    """The compactions of one database, over an open store."""

    def __init__(self, store: ObjectStore, root: str, env: Env, metrics: Metrics | None = None) -> None:
        options = ProtocolOptions(component="admin")
        self._env = env
        self._require_alive = partial(require_not_destroyed, store, root)
        self._manifests = ManifestStore(store, root, env, metrics, options)
        self._compactions = CompactionsStore(store, root, env, metrics, options)
        self._history = CompactionsHistory(self._compactions)
        self._old_manifests = ManifestHistory(self._manifests)

    async def submit(
        self, request: CompactionRequest, *, dry_run: bool = False, retry_of: Ulid | None = None
    ) -> tuple[CompactionInfo, ...]:
        """See ``Admin.submit_compaction``.  ``retry_of``: the failed compaction that the request repeats."""
        await self._require_alive()
        entries, manifest = await submit(self._manifests, self._compactions, self._env, request, dry_run=dry_run)
        for entry in () if dry_run else entries:
            await self._compactions.records.change(entry.id, partial(_requested, entry, retry_of))
        now_ms = self._env.clock.now_ms()
        infos = (
            compaction_info(entry, inputs=inputs_of(manifest, entry.spec), life=CompactionLifecycle(), now_ms=now_ms)
            for entry in entries
        )
        return tuple(replace(info, kind=CompactionKind.EXTERNAL, retry_of=retry_of) for info in infos)

    async def status(self, compaction_id: Ulid) -> CompactionInfo:
        """See ``Admin.compaction_status``."""
        history = await self._read_history(compaction_id.ms)
        if compaction_id not in all_ids(history.snapshots):
            # The submitter's clock may have been ahead of the store's, so that its versions seem older than the id.
            history = await self._read_history(0)
        return await self._info(compaction_id, history, await read_manifest(self._manifests))

    async def status_in(self, compaction_id: Ulid, file_id: int) -> CompactionInfo:
        """Return one compaction from one version of the file, without times and attempts."""
        compactions = await self._compactions.read(file_id)
        entry = compactions.get(compaction_id) if compactions is not None else None
        if entry is None:
            what = "does not know it" if compactions is not None else "is not stored"
            raise NotFoundError(f"compaction {compaction_id}: version {file_id} of the compactions file {what}")
        inputs = inputs_of(await read_manifest(self._manifests), entry.spec)
        return compaction_info(entry, inputs=inputs, life=CompactionLifecycle(), now_ms=self._env.clock.now_ms())

    async def list(self, *, all_retained: bool = False) -> tuple[CompactionInfo, ...]:
        """See ``Admin.compactions``."""
        since_ms = 0 if all_retained else await self._oldest_listed_ms()
        history = await self._read_history(since_ms)
        # The manifest must be read after the compactions: it then has all results that they call finished.
        manifest = await read_manifest(self._manifests)
        if not all_retained:
            return tuple([await self._info(entry.id, history, manifest) for entry in history.latest.entries])
        stored = all_ids(history.snapshots)
        infos = [await self._info(compaction_id, history, manifest) for compaction_id in stored]
        for compaction_id in (await self._recorded_ids()) - set(stored):
            with suppress(NotFoundError):  # its record does not tell how it ended
                infos.append(await self._info(compaction_id, history, manifest))
        return tuple(sorted(infos, key=lambda info: info.id))

    async def wait(
        self,
        compaction_id: Ulid,
        on_progress: OnProgress | None = None,
        *,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> CompactionInfo:
        """See ``Admin.wait_for_compaction``."""
        seen: tuple[int, CompactionInfo] | None = None
        changed = WakeEvent()
        with self._compactions.on_other_commit(changed.notify):
            while True:
                latest = await self._compactions.read_latest()
                if seen is None or seen[0] != latest.id:
                    seen = latest.id, await self.status(compaction_id)
                info = seen[1]
                if on_progress is not None:
                    on_progress(info)
                if info.is_finished:
                    return info
                await changed.wait_for(poll_interval_s)

    async def cancel(
        self, compaction_id: Ulid, *, confirm_s: float = 0.0, poll_interval_s: float = POLL_INTERVAL_S
    ) -> CompactionInfo:
        """See ``Admin.cancel_compaction``."""
        await self._require_alive()
        await self._store_cancelled(compaction_id)
        if confirm_s > 0:
            await self._confirm_cancelled(compaction_id, confirm_s, poll_interval_s)
        return await self.status(compaction_id)

    async def retry(self, compaction_id: Ulid) -> CompactionInfo:
        """See ``Admin.retry_compaction``."""
        info = await self.status(compaction_id)
        if info.status is not CompactionStatus.FAILED:
            raise NotFailed(f"compaction {compaction_id} is {info.phase}: only a failed one can be retried")
        (again,) = await self.submit(request_again(info.spec), retry_of=compaction_id)
        return again

    async def _store_cancelled(self, compaction_id: Ulid) -> None:
        stored = await load_compactions(self._manifests, self._compactions, self._env)
        conflicts = 0
        while True:
            base = stored.prepare_dirty()
            entry = base.value.get(compaction_id)
            if entry is None:
                # The coordinator drops ended entries; an unknown id raises here.
                info = await self.status(compaction_id)
                raise TooLateToCancel(f"compaction {compaction_id} is {info.phase}: too late to cancel it")
            if conflicts and entry.status is CompactionStatus.FAILED:
                return  # this write succeeded and its response was lost, or the coordinator failed the entry
            try:
                await stored.update(Versioned(base.id, with_cancelled(base.value, compaction_id)))
            except ObjectVersionExists:
                conflicts += 1
                await stored.recover(conflicts)
            else:
                return

    async def _confirm_cancelled(self, compaction_id: Ulid, confirm_s: float, poll_interval_s: float) -> None:
        """Check that the coordinator does not restore its own copy.

        Raises:
            CancelIgnored: it did.
        """
        deadline_s = self._env.clock.monotonic_s() + confirm_s
        while self._env.clock.monotonic_s() < deadline_s:
            entry = (await self._compactions.read_latest()).value.get(compaction_id)
            if entry is None:
                return
            if entry.status is not CompactionStatus.FAILED:
                raise CancelIgnored(
                    f"compaction {compaction_id} is {entry.status.name.lower()} after all: its coordinator "
                    "does not know of cancelling and goes on; no data is lost"
                )
            await anyio.sleep(poll_interval_s)

    async def _recorded_ids(self) -> set[Ulid]:
        """Return the ids of the newest records, which outlive the versions."""
        ids = [compaction_id async for page in self._compactions.records.pages() for compaction_id, _ in page]
        return set(sorted(ids)[-RECORDS_LISTED_MAX:])

    async def _oldest_listed_ms(self) -> int:
        """Return when the oldest compaction of the newest version was submitted."""
        latest = await self._compactions.try_read_latest()
        now_ms = self._env.clock.now_ms()
        return now_ms if latest is None else min([entry.id.ms for entry in latest.value.entries], default=now_ms)

    async def _read_history(self, since_ms: int) -> VersionHistory:
        """Return the newest version, checked against the boundary, and the versions retained since then.

        Raises:
            LatestRecordMissing: there is no database.
        """
        latest = await self._compactions.try_read_latest()
        if latest is None:
            await self._manifests.read_latest()
            return VersionHistory()
        retained = await self._history.since(since_ms)
        earlier = [snapshot for snapshot in retained if snapshot.file_id < latest.id]
        written_ms = next((each.written_ms for each in retained if each.file_id == latest.id), None)
        newest_ms = self._env.clock.now_ms() if written_ms is None else written_ms
        return VersionHistory(latest.value, (*earlier, CompactionsVersion.of(latest.id, newest_ms, latest.value)))

    async def _info(self, compaction_id: Ulid, history: VersionHistory, manifest: Manifest) -> CompactionInfo:
        """Return the status of a compaction; raise ``NotFoundError`` if no version has it or its end."""
        life = lifecycle_of(compaction_id, history.snapshots)
        record = await self._compactions.records.read(compaction_id)
        entry = history.latest.get(compaction_id) or await self._ended(compaction_id, life, record)
        error = await self._error(life) if entry.status is CompactionStatus.FAILED else None
        info = compaction_info(
            entry,
            inputs=inputs_of(manifest, entry.spec) or await self._old_inputs(entry, life),
            life=life,
            now_ms=self._env.clock.now_ms(),
            error=error,
        )
        return info if record is None else with_record(info, record)

    async def _ended(
        self, compaction_id: Ulid, life: CompactionLifecycle, record: CompactionRecord | None
    ) -> Compaction:
        """Return the finished entry of a compaction that the newest version does not list any more."""
        recorded = entry_of(record) if record is not None else None
        if recorded is not None:
            last = life.last
            return recorded if last is None else replace(last.entry, status=recorded.status, worker=None)
        if life.last is None:
            raise NotFoundError(f"compaction {compaction_id}: none of the stored versions knows it")
        if life.last.entry.status.is_finished:
            return life.last.entry
        ended = outcome(life, await self._old_manifests.since(life.last.written_ms))
        if ended is None:
            raise NotFoundError(f"compaction {compaction_id} has ended; the versions that show how were deleted by GC")
        return ended

    async def _error(self, life: CompactionLifecycle) -> str:
        end_ms = life.end_ms
        manifests = await self._old_manifests.before(end_ms) if end_ms is not None else ()
        manifest = manifests[0] if manifests else None
        return failure_reason(life, manifest)

    async def _old_inputs(self, entry: Compaction, life: CompactionLifecycle) -> tuple[SstView, ...] | None:
        """Return the inputs of an ended compaction, from the last manifest that has them."""
        end_ms = life.end_ms
        if end_ms is None or not entry.status.is_finished:
            return None
        found = (inputs_of(manifest, entry.spec) for manifest in await self._old_manifests.before(end_ms))
        return next((inputs for inputs in found if inputs is not None), None)


def _requested(entry: Compaction, retry_of: Ulid | None, record: CompactionRecord) -> CompactionRecord:
    return replace(record, spec=entry.spec, kind=CompactionKind.EXTERNAL, retry_of=retry_of)


def ulid_of(text: str | Ulid) -> Ulid:
    """Parse the id of a compaction.

    Raises:
        InvalidRequestError: it is not a ULID.
    """
    if isinstance(text, Ulid):
        return text
    id_ = Ulid.parse(text.strip().upper())
    if id_ is None:
        raise InvalidRequestError(f"{text!r} is not the id of a compaction (a ULID of 26 characters)")
    return id_
