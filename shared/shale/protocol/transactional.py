"""Read-modify-write on a versioned value, with and without an epoch.

Fencing needs no lock: a claim writes a higher epoch as the next version, so every update of the older process loses
its create, and the refresh that follows reads the higher epoch.

Source: docs/reference/protocol.md 3.1, 3.2; SlateDB slatedb-txn-obj/src/lib.rs.
"""

from collections.abc import Callable
from typing import Generic, Self, TypeAlias

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import (
    FencedError,
    InvalidObjectState,
    ObjectUpdateTimeout,
    ObjectVersionBehindBoundary,
    ObjectVersionExists,
    ProtocolPanic,
    ShaleError,
)
from shale.protocol.backoff import conflict_delay_s
from shale.protocol.versioned import T, Versioned, VersionedValues
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Epoch

Change: TypeAlias = Callable[[Versioned[T]], T | None]
"""Pure and idempotent: it is called again after every conflict, also on top of its own effect.  Its result will be
version ``current.id + 1``; ``None`` means that nothing needs to change."""

ClaimEdit: TypeAlias = Callable[[T, Epoch, int], T]
"""Maps a value with a new epoch, that epoch, and the version that will be written, to the value that is written."""

log = get_logger("transactional")


class EpochTaken(FencedError):
    """Another process claimed the epoch first; this one never held it and has written nothing."""


class Stored(Generic[T]):
    """A version of a value, from which the next one can be committed."""

    def __init__(self, store: VersionedValues[T], current: Versioned[T], env: Env) -> None:
        self._store = store
        self._current = current
        self._checked_id = current.id
        self._env = env

    @property
    def id(self) -> int:
        """The id of the current version."""
        return self._current.id

    @property
    def value(self) -> T:
        """The current value: the newest when it was read."""
        return self._current.value

    @property
    def current(self) -> Versioned[T]:
        """Id and value of the current version."""
        return self._current

    @property
    def store(self) -> VersionedValues[T]:
        """The store of the versions."""
        return self._store

    async def refresh(self) -> Versioned[T]:
        """Adopt the newest version.

        Raises:
            InvalidObjectState: there is none, or only older ones.
        """
        id_before = self._current.id
        latest = await self._store.try_read_latest()
        if latest is None or latest.id < id_before:
            message = f"version {id_before} was the latest and is missing; the latest is now {latest and latest.id}"
            raise InvalidObjectState(message, path=self._store.namespace.directory)
        self._adopt_checked(latest)
        return self._current

    def prepare_dirty(self) -> Versioned[T]:
        """Return the version to derive a new value from; ``update`` takes it with its value replaced."""
        return self._current

    async def update(self, dirty: Versioned[T]) -> Versioned[T]:
        """Write ``dirty.value`` as the version after ``dirty.id`` and adopt it.

        Raises:
            ObjectVersionExists: another process wrote that version, or this object has a newer one.
        """
        if dirty.id != self._current.id:
            raise ObjectVersionExists(f"derived from version {dirty.id}, but {self._current.id} is current")
        self._store.namespace.check(self._current.value, dirty.value)
        try:
            committed = await self._store.commit(dirty.id, dirty.value)
        except ShaleError as error:
            self._store.updates.attempt(_result_of(error))
            raise
        self._store.updates.attempt("ok")
        self._adopt_checked(committed)
        return committed

    async def apply(self, change: Change[T], *, repeats: bool = False) -> Versioned[T]:
        """Commit ``change`` on top of the newest version, however often others commit first.

        If a conflict leaves the newest value equal to ours, our own earlier write succeeded, and nothing is written: a
        version without a change means that a writer has closed.

        Args:
            repeats: write it nevertheless.

        Raises:
            FencedError: a refresh read a newer epoch; never retried.
        """
        started = self._env.clock.monotonic_s()
        conflicts = 0
        while True:
            base = self.prepare_dirty()
            changed = change(base)
            if changed is None or (conflicts and not repeats and changed == base.value):
                if base.id <= self._checked_id:
                    return base
                await self.refresh()
                continue
            try:
                committed = await self.update(Versioned(base.id, changed))
            except ObjectVersionBehindBoundary:
                conflicts += 1
                await self.recover(conflicts)
            except ObjectVersionExists:
                conflicts += 1
                self._log_conflict(conflicts)
                await anyio.sleep(conflict_delay_s(conflicts, self._env.rng))
                await self._catch_up_after(base.id)
            else:
                self._store.updates.seconds(self._env.clock.monotonic_s() - started)
                return committed

    async def catch_up(self) -> None:
        """Adopt the newest version at half the cost of ``refresh``, before a write, which checks the boundary itself.

        The shorter the time between reading a version and writing the next, the rarer are conflicts: with a slow store
        and many writers, some would otherwise never succeed.
        """
        base = await self._store.read_base()
        if base is None or base.id < self._current.id:
            await self.refresh()
        else:
            self._adopt(base)

    async def _catch_up_after(self, refused_base_id: int) -> None:
        """Adopt the newest version after a refused create."""
        await self.catch_up()
        if self._current.id <= refused_base_id:
            # With two-phase creates, an id that was deleted is refused as one that exists, and probing for the next
            # one would end at the same version for ever.
            await self.refresh()

    async def recover(self, conflicts: int) -> Versioned[T]:
        """Wait, the longer the more conflicts there were in a row, then refresh."""
        self._log_conflict(conflicts)
        await anyio.sleep(conflict_delay_s(conflicts, self._env.rng))
        return await self.refresh()

    def _log_conflict(self, conflicts: int) -> None:
        log.debug(
            Event.MANIFEST_UPDATE_CONFLICT,
            resource=self._store.namespace.resource,
            base_id=self._current.id,
            attempts=conflicts,
        )

    def _adopt_checked(self, version: Versioned[T]) -> None:
        """Adopt a version that was compared with the boundary."""
        self._checked_id = max(self._checked_id, version.id)
        self._adopt(version)

    def _adopt(self, version: Versioned[T]) -> None:
        # Tasks share this object, and their requests end in any order: never go back to an older version.
        if version.id >= self._current.id:
            self._current = version


@dataclass(frozen=True, slots=True)
class EpochField(Generic[T]):
    """How to read and to replace the epoch of one role in a value.  ``advice``: what to do when it is fenced."""

    role: str
    get: Callable[[T], Epoch]
    set: Callable[[T, Epoch], T]
    advice: str = ""

    def fenced(self, reason: str) -> FencedError:
        """Return the error of a fenced owner."""
        return FencedError("; ".join(filter(None, (f"{self.role} epoch {reason}", self.advice))))


class Fenceable(Stored[T]):
    """A version of a value for the owner of an epoch.  Every use raises once a newer owner was seen."""

    def __init__(
        self, store: VersionedValues[T], current: Versioned[T], env: Env, *, field: EpochField[T], epoch: Epoch
    ) -> None:
        super().__init__(store, current, env)
        self._field = field
        self.epoch = epoch

    @classmethod
    async def claim(
        cls,
        stored: Stored[T],
        role: EpochField[T],
        *,
        only_after: Epoch | None = None,
        edit: ClaimEdit[T] | None = None,
    ) -> Self:
        """Commit the next epoch; from then on, updates of every older owner fail.

        Args:
            only_after: claim only while this is the newest epoch, so that no later owner is fenced.
            edit: changes the claimed value further; by default nothing but the epoch is written.

        Raises:
            ObjectUpdateTimeout: conflicts did not end within ``manifest_update_timeout_s``.
            EpochTaken: the newest epoch is not ``only_after``.
        """

        def claimed(value: T) -> Epoch:
            newest = role.get(value)
            if only_after is not None and newest != only_after:
                raise EpochTaken(str(role.fenced(f"{newest} was claimed after {only_after}")))
            return Epoch(newest + 1)

        return await cls._claim(stored, role, claimed, edit=edit)

    @classmethod
    async def claim_epoch(cls, stored: Stored[T], role: EpochField[T], epoch: Epoch) -> Self:
        """Commit an epoch that this process has claimed elsewhere, in the manifest.

        Raises:
            FencedError: the value holds that epoch or a higher one already.
        """
        conflicts = 0

        def claimed(value: T) -> Epoch | None:
            nonlocal conflicts
            seen, own = role.get(value), conflicts > 0
            conflicts += 1
            if seen == epoch and own:
                return None  # the response to our own write was lost: no other process can hold this epoch
            if seen >= epoch:
                raise role.fenced(f"{epoch} was superseded by {seen}")
            return epoch

        return await cls._claim(stored, role, claimed, epoch)

    @classmethod
    async def _claim(
        cls,
        stored: Stored[T],
        role: EpochField[T],
        wanted: Callable[[T], Epoch | None],
        known: Epoch | None = None,
        edit: ClaimEdit[T] | None = None,
    ) -> Self:
        options = stored.store.options
        epoch = known

        def change(current: Versioned[T]) -> T | None:
            nonlocal epoch
            next_epoch = wanted(current.value)
            if next_epoch is None:
                return None
            epoch = next_epoch
            value = role.set(current.value, next_epoch)
            return value if edit is None else edit(value, next_epoch, current.id + 1)

        with anyio.move_on_after(options.manifest_update_timeout_s) as scope:
            await stored.apply(change)
        if scope.cancelled_caught:
            seconds = options.manifest_update_timeout_s
            raise ObjectUpdateTimeout(f"no {role.role} epoch within {seconds} s: {stored.store.namespace.directory}")
        assert epoch is not None
        log.info(Event.EPOCH_CLAIMED, role=role.role, resource=stored.store.namespace.resource, epoch=epoch)
        return cls(stored.store, stored.current, stored._env, field=role, epoch=epoch)

    def check_epoch(self) -> None:
        """Compare the current epoch with ours.

        Raises:
            FencedError: it is newer.
            ProtocolPanic: it is older, so an old version was restored as the newest.
        """
        stored_epoch = self._field.get(self._current.value)
        if stored_epoch > self.epoch:
            self._store.updates.attempt("fenced")
            raise self._field.fenced(f"{self.epoch} was superseded by {stored_epoch}")
        if stored_epoch < self.epoch:
            raise ProtocolPanic("epoch went backwards", role=self._field.role, ours=self.epoch, stored=stored_epoch)

    async def refresh(self) -> Versioned[T]:
        """See ``Stored``; raises ``FencedError`` when it reads a newer epoch."""
        await super().refresh()
        self.check_epoch()
        return self._current

    def prepare_dirty(self) -> Versioned[T]:
        """See ``Stored``."""
        self.check_epoch()
        return super().prepare_dirty()

    async def update(self, dirty: Versioned[T]) -> Versioned[T]:
        """See ``Stored``."""
        self.check_epoch()
        return await super().update(dirty)


def _result_of(error: ShaleError) -> str:
    if isinstance(error, ObjectVersionBehindBoundary):
        return "stale"
    if isinstance(error, ObjectVersionExists):
        return "conflict"
    return "fenced" if isinstance(error, FencedError) else "error"
