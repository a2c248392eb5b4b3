"""Snapshots that clients hold: each has a lease, and their number is limited.

A snapshot keeps old rows from being dropped, so the snapshot of a client that has vanished must expire.  Clients renew
the leases that they still need.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeAlias

import anyio

from shale.api.settings import HttpSection
from shale.core.lazy_dataclass import dataclass
from shale.engine.read.read_point import Durability
from shale.engine.read.snapshot import Snapshot
from shale.engine.reader.snapshot import ReaderSnapshot
from shale.env import Env
from shale.errors import ErrorKind
from shale.service.http.problems import Problem, bad_request, busy

SnapshotHandle: TypeAlias = Snapshot | ReaderSnapshot
"""A snapshot of a writer or of a reader."""

TakeSnapshot: TypeAlias = Callable[[Durability], Awaitable[SnapshotHandle]]
"""Takes a snapshot of the current state."""

_NOTHING_TO_END_S = 3600.0


@dataclass(slots=True, eq=False)
class SnapshotLease:
    """A snapshot with a lease.  ``ends_s`` is monotonic time; ``expires_ms`` (since 1970) is sent to the client."""

    id: str
    snapshot: SnapshotHandle
    ends_s: float = 0.0
    expires_ms: int = 0


class SnapshotLeases:
    """The leases of one data port; ``max_snapshot_lifetime`` is the longest lifetime and the default."""

    def __init__(self, take: TakeSnapshot, env: Env, http: HttpSection) -> None:
        self.take = take
        self._env = env
        self._leases_max = http.max_snapshots
        self._lifetime_max_ms = round(http.max_snapshot_lifetime * 1000)
        self._leases: dict[str, SnapshotLease] = {}
        self._opening = 0
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._leases)

    async def open(self, durability: Durability, lifetime_ms: int | None) -> SnapshotLease:
        """Open a snapshot of the current state.

        Raises:
            Problem: too many snapshots are open (429), or the lifetime is too long (400).
        """
        lifetime_ms = self._checked(lifetime_ms)
        await self._end_expired()
        count = len(self._leases) + self._opening
        if count >= self._leases_max:
            raise busy(f"{count} snapshots are open; close some", status=HTTPStatus.TOO_MANY_REQUESTS)
        self._opening += 1  # counts while it waits: a reader may have to fetch its newest state
        try:
            snapshot = await self.take(durability)
        finally:
            self._opening -= 1
        lease = SnapshotLease(str(self._env.ids.ulid()), snapshot)
        self._leases[lease.id] = lease
        self._extend(lease, lifetime_ms)
        return lease

    def renew(self, snapshot_id: str, lifetime_ms: int | None) -> SnapshotLease:
        """Renew a lease, counted from now; raises like ``open`` and ``lease``."""
        lease = self.lease(snapshot_id)
        self._extend(lease, self._checked(lifetime_ms))
        return lease

    async def close(self, snapshot_id: str) -> None:
        """Close a snapshot unless it has expired; open scans continue."""
        lease = self._leases.pop(snapshot_id, None)
        if lease is not None:
            await lease.snapshot.close()

    def lease(self, snapshot_id: str) -> SnapshotLease:
        """Return the lease with this id.

        Raises:
            Problem: the lease does not exist or has expired (410).
        """
        lease = self._leases.get(snapshot_id)
        if lease is None or lease.ends_s <= self._env.clock.monotonic_s():
            raise Problem(HTTPStatus.GONE, f"snapshot {snapshot_id}: the lease has expired", kind=ErrorKind.DATA.value)
        return lease

    async def run(self) -> None:
        """Close expired snapshots until cancelled; then close all."""
        try:
            while True:
                self._changed = anyio.Event()
                with anyio.move_on_after(self._next_end_s()):
                    await self._changed.wait()
                await self._end_expired()
        finally:
            with anyio.CancelScope(shield=True):
                for lease in self._leases.values():
                    await lease.snapshot.close()
                self._leases.clear()

    def _checked(self, lifetime_ms: int | None) -> int:
        if lifetime_ms is None:
            return self._lifetime_max_ms
        if not 0 < lifetime_ms <= self._lifetime_max_ms:
            raise bad_request(f"lifetime_ms: must be between 1 and {self._lifetime_max_ms}")
        return lifetime_ms

    def _extend(self, lease: SnapshotLease, lifetime_ms: int) -> None:
        lease.ends_s = self._env.clock.monotonic_s() + lifetime_ms / 1000
        lease.expires_ms = self._env.clock.now_ms() + lifetime_ms
        self._changed.set()

    def _next_end_s(self) -> float:
        ends_s = min((lease.ends_s for lease in self._leases.values()), default=None)
        return _NOTHING_TO_END_S if ends_s is None else max(0.0, ends_s - self._env.clock.monotonic_s())

    async def _end_expired(self) -> None:
        now_s = self._env.clock.monotonic_s()
        for lease in [lease for lease in self._leases.values() if lease.ends_s <= now_s]:
            await self.close(lease.id)
