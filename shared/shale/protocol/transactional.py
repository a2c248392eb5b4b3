"""Read-modify-write on a versioned value, with and without an epoch.

Fencing needs no lock: a claim writes a higher epoch as the next version, so every update of the older process loses
its create, and the refresh that follows meets the higher epoch.

Source: docs/protocol.md 3.1, 3.2; SlateDB slatedb-txn-obj/src/lib.rs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeAlias

import anyio

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
from shale.protocol.versioned import T, Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Epoch

if TYPE_CHECKING:
    from shale.protocol.versioned_store import VersionedStore

Change: TypeAlias = Callable[[Versioned[T]], T | None]
"""Pure and idempotent: it is called again after every conflict, perhaps on top of its own effect.  The version that
it would write is ``current.id + 1``; ``None`` means that there is nothing to do."""

log = get_logger("transactional")


class Stored(Generic[T]):
    """A version of a value, and the way to the next one."""

    def __init__(self, store: "VersionedStore[T]", current: Versioned[T], env: Env) -> None:
        self._store = store
        self._current = current
        self._checked_id = current.id
        self._env = env

    @property
    def id(self) -> int:
        """The id of the version at hand."""
        return self._current.id

    @property
    def value(self) -> T:
        """The value at hand: the newest when it was read."""
        return self._current.value

    @property
    def current(self) -> Versioned[T]:
        """Id and value together."""
        return self._current

    @property
    def store(self) -> "VersionedStore[T]":
        """Where the versions are."""
        return self._store

    async def refresh(self) -> Versioned[T]:
        """Adopt the newest version.

        Raises:
            InvalidObjectState: there is none any more, or only older ones.
        """
        id_before = self._current.id
        latest = await self._store.try_read_latest()
        if latest is None or latest.id < id_before:
            message = f"version {id_before} was the latest and is gone; now there is {latest and latest.id}"
            raise InvalidObjectState(message, path=self._store.namespace.directory)
        self._adopt_checked(latest)
        return self._current

    def prepare_dirty(self) -> Versioned[T]:
        """The version to derive a new value from; hand it to ``update`` with its value replaced."""
        return self._current

    async def update(self, dirty: Versioned[T]) -> Versioned[T]:
        """Write ``dirty.value`` as the version after ``dirty.id`` and adopt it.

        Raises:
            ObjectVersionExists: somebody else wrote that version, or this object has moved on.
        """
        if dirty.id != self._current.id:
            raise ObjectVersionExists(f"derived from version {dirty.id}, but {self._current.id} is at hand")
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

        After a conflict a value that equals the newest one is not written: where no answer tells us apart from others,
        it was our own write that came in our way, and a version that changes nothing means that a writer has closed.

        Args:
            repeats: write it all the same.

        Raises:
            FencedError: from a refresh that met a newer epoch; never retried.
        """
        started = self._env.clock.monotonic_s()
        conflicts = 0
        while True:
            base = self.prepare_dirty()
            wanted = change(base)
            if wanted is None or (conflicts and not repeats and wanted == base.value):
                if base.id <= self._checked_id:
                    return base
                await self.refresh()
                continue
            try:
                committed = await self.update(Versioned(base.id, wanted))
            except ObjectVersionBehindBoundary:
                conflicts += 1
                await self.recover(conflicts)
            except ObjectVersionExists:
                conflicts += 1
                self._log_conflict(conflicts)
                await anyio.sleep(conflict_delay_s(conflicts, self._env.rng))
                await self.catch_up()
            else:
                self._store.updates.seconds(self._env.clock.monotonic_s() - started)
                return committed

    async def catch_up(self) -> None:
        """As ``refresh``, at half its cost, for somebody who writes next: the boundary is asked after the create.

        The shorter the time between reading a version and writing on top of it, the rarer are conflicts: with a slow
        store and many writers some would otherwise never get through.
        """
        base = await self._store.read_base()
        if base is None or base.id < self._current.id:
            await self.refresh()
        else:
            self._adopt(base)

    async def recover(self, conflicts: int) -> Versioned[T]:
        """Wait as long as befits the number of conflicts in a row, then refresh."""
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
        """Adopt a version that was held against the boundary."""
        self._checked_id = max(self._checked_id, version.id)
        self._adopt(version)

    def _adopt(self, version: Versioned[T]) -> None:
        # Tasks share this object, and their requests end in any order: never move back.
        if version.id >= self._current.id:
            self._current = version


@dataclass(frozen=True, slots=True)
class EpochField(Generic[T]):
    """Where a value keeps the epoch of one role."""

    role: str
    get: Callable[[T], Epoch]
    set: Callable[[T, Epoch], T]


class Fenceable(Stored[T]):
    """A version of a value for the owner of an epoch.  Every use raises once a newer owner has been seen."""

    def __init__(
        self, store: "VersionedStore[T]", current: Versioned[T], env: Env, *, field: EpochField[T], epoch: Epoch
    ) -> None:
        super().__init__(store, current, env)
        self._field = field
        self.epoch = epoch

    @classmethod
    async def claim(cls, stored: Stored[T], role: EpochField[T], *, only_after: Epoch | None = None) -> Self:
        """Take the next epoch, and change nothing else; from here every older owner's update fails.

        Args:
            only_after: claim only while this is the newest epoch; nobody who came later is fenced.

        Raises:
            ObjectUpdateTimeout: conflicts did not end within ``manifest_update_timeout_s``.
            FencedError: somebody came after ``only_after``.
        """

        def claimed(value: T) -> Epoch:
            newest = role.get(value)
            if only_after is not None and newest != only_after:
                raise FencedError(f"{role.role} epoch {newest} was claimed meanwhile, after {only_after}")
            return Epoch(newest + 1)

        return await cls._claim(stored, role, claimed)

    @classmethod
    async def claim_epoch(cls, stored: Stored[T], role: EpochField[T], epoch: Epoch) -> Self:
        """Take an epoch that was claimed elsewhere, in the manifest, and belongs to this process alone.

        Raises:
            FencedError: the value holds that epoch or a higher one already.
        """
        conflicts = 0

        def claimed(value: T) -> Epoch | None:
            nonlocal conflicts
            seen, own = role.get(value), conflicts > 0
            conflicts += 1
            if seen == epoch and own:
                return None  # the answer to our own write was lost: nobody else can hold this epoch
            if seen >= epoch:
                raise FencedError(f"{role.role} epoch {epoch} was superseded by {seen}")
            return epoch

        return await cls._claim(stored, role, claimed, epoch)

    @classmethod
    async def _claim(
        cls,
        stored: Stored[T],
        role: EpochField[T],
        wanted: Callable[[T], Epoch | None],
        known: Epoch | None = None,
    ) -> Self:
        options = stored.store.options
        epoch = known

        def change(current: Versioned[T]) -> T | None:
            nonlocal epoch
            next_epoch = wanted(current.value)
            if next_epoch is None:
                return None
            epoch = next_epoch
            return role.set(current.value, next_epoch)

        with anyio.move_on_after(options.manifest_update_timeout_s) as scope:
            await stored.apply(change)
        if scope.cancelled_caught:
            seconds = options.manifest_update_timeout_s
            raise ObjectUpdateTimeout(f"no {role.role} epoch within {seconds} s: {stored.store.namespace.directory}")
        assert epoch is not None
        log.info(Event.EPOCH_CLAIMED, role=role.role, resource=stored.store.namespace.resource, epoch=epoch)
        return cls(stored.store, stored.current, stored._env, field=role, epoch=epoch)

    def check_epoch(self) -> None:
        """Compare the epoch at hand with ours.

        Raises:
            FencedError: it is newer.
            ProtocolPanic: it is older, so somebody restored an old version as the newest.
        """
        stored_epoch = self._field.get(self._current.value)
        if stored_epoch > self.epoch:
            self._store.updates.attempt("fenced")
            raise FencedError(f"{self._field.role} epoch {self.epoch} was superseded by {stored_epoch}")
        if stored_epoch < self.epoch:
            raise ProtocolPanic("epoch went backwards", role=self._field.role, ours=self.epoch, stored=stored_epoch)

    async def refresh(self) -> Versioned[T]:
        """See ``Stored``; raises ``FencedError`` when it meets a newer epoch."""
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
