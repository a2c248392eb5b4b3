"""Finish what dead processes left: uncommitted records, tombstones and staged objects (docs/reference/protocol.md 12.5,
12.6)."""

from collections.abc import AsyncIterator, Sequence

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ShaleError
from shale.store.port import ObjectMeta
from shale.store.retry import RetryingStore
from shale.store.transactional.port import CommitRecord, TransactionalStore
from shale.store.two_phase.names import is_sequenced_directory, parse_staged_key, slot_of
from shale.store.two_phase.store import TwoPhaseStore, two_phase_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

INTERVAL_S = 60.0
MIN_AGE_MS = 10_000
"""Younger records belong to a put that goes on."""
log = get_logger("two_phase")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """What a recovery did: destinations that it finished or deleted, and errors by destination."""

    recovered: tuple[str, ...]
    errors: dict[str, ShaleError]
    waiting: int
    """Records that are too young."""


class TwoPhaseRecovery:
    """Recovers the objects below one prefix.

    Args:
        store: the store that has these objects.
        env: clock.
        metrics: counts what was recovered.
        prefix: the keys to recover.
        excluded: keys below ``prefix`` that are in another store: the WAL, if it has a store of its own.
    """

    def __init__(
        self, store: TwoPhaseStore, env: Env, metrics: Metrics, prefix: str = "", *, excluded: str | None = None
    ) -> None:
        self._check_id = store.check_id
        self._records = store.records
        self._commits = store.commits
        self._env = env
        self._prefix = prefix
        self._excluded = excluded
        self._recovered = metrics.counter("slatedb_two_phase_recovered_total").inc
        self._uncommitted = metrics.gauge("slatedb_two_phase_uncommitted").set
        self._set_up = metrics.gauge("slatedb_transactional_store_up").set

    async def run(self) -> None:
        """Recover at once and then every minute, until cancelled.  A failed pass is logged and tried again."""
        while True:
            try:
                await self.recover()
            except ShaleError as error:
                log.error(Event.TWO_PHASE_RECOVERY_FAILED, destination=self._prefix, source="", error=error)
            await anyio.sleep(INTERVAL_S)

    async def recover(self, *, min_age_ms: int | None = MIN_AGE_MS) -> RecoveryResult:
        """Finish all uncommitted records of at least this age, and all tombstones.

        Args:
            min_age_ms: ``None``: all, whatever the clocks of their processes said.

        Raises:
            UnavailableError: the transactional store did not answer.
            StoreUnsafe: its records belong to another store.
        """
        try:
            await self._check_id()
            found = await self._records.unfinished(self._prefix)
        except ShaleError:
            self._set_up(0)
            raise
        self._set_up(1)
        excluded = self._excluded
        unfinished = [record for record in found if excluded is None or not record.destination.startswith(excluded)]
        self._uncommitted(sum(not record.is_committed for record in unfinished))
        youngest_ms = None if min_age_ms is None else self._env.clock.now_ms() - min_age_ms
        recovered: list[str] = []
        errors: dict[str, ShaleError] = {}
        waiting = 0
        for record in unfinished:
            if youngest_ms is not None and not record.is_deleted and record.created_at_ms > youngest_ms:
                waiting += 1
                continue
            try:
                await self._finish(record)
            except ShaleError as error:
                errors[record.destination] = error
                log.error(
                    Event.TWO_PHASE_RECOVERY_FAILED,
                    destination=record.destination,
                    source=record.source,
                    error=error,
                )
            else:
                recovered.append(record.destination)
                self._recovered(1)
                log.info(Event.TWO_PHASE_RECOVERED, destination=record.destination, source=record.source)
        self._uncommitted(waiting + len(errors))
        return RecoveryResult(recovered=tuple(recovered), errors=errors, waiting=waiting)

    async def _finish(self, record: CommitRecord) -> None:
        if not record.is_deleted:
            await self._commits.help(record)
            return
        for error in (await self._commits.delete_marked([record.destination])).values():
            raise error


async def staged_orphans(
    store: RetryingStore, directory: str, *, now_ms: int, min_age_ms: int
) -> AsyncIterator[Sequence[ObjectMeta]]:
    """Yield pages of the staged objects of a directory whose record can no longer be inserted.

    An age alone proves nothing: a writer that was frozen for days between its first two steps would commit a record
    whose bytes are gone.  What is found here stays an orphan: marks only rise, and a record that names another object,
    or is committed or deleted, is followed only by a higher mark.

    Args:
        store: a store of the two-phase mode, whose own listings leave staged objects out.
        directory: a directory of numbered files, with its slash.
        now_ms: by the store's clock.
        min_age_ms: younger objects are not looked at.

    Source: docs/reference/protocol.md 12.6.
    """
    assert is_sequenced_directory(directory)
    two_phase = two_phase_of(store)
    assert two_phase is not None
    records = two_phase.records
    mark = await store.retry("low_water_mark", lambda: records.low_water_mark(directory.rstrip("/")))
    async for page in store.over(two_phase.wrapped).list_pages(directory):
        staged = [meta for meta in page if parse_staged_key(meta.key) is not None]
        old = [meta for meta in staged if now_ms - meta.last_modified_ms > min_age_ms]
        if orphans := [meta for meta in old if await _is_orphan(store, records, meta.key, mark)]:
            yield orphans


async def _is_orphan(store: RetryingStore, records: TransactionalStore, key: str, mark: int) -> bool:
    name = parse_staged_key(key)
    assert name is not None
    record = await store.retry("get_record", lambda: records.get(name.destination))
    if record is not None:
        # Never while an uncommitted record names it, whatever the mark says.
        return record.source != key or record.is_committed or record.is_deleted
    slot = slot_of(name.destination)
    return slot is not None and slot.id <= mark
