"""Snapshots that clients hold: each has a lease, and there is room for a bounded number of them.

A snapshot keeps old rows from being dropped, so one whose client went away must end by itself.  Clients renew what
they still need.
"""

from dataclasses import dataclass
from http import HTTPStatus

import anyio

from shale.api.moments import Moment, TakeMoment
from shale.api.settings import HttpSection
from shale.engine.read_point import Durability
from shale.env import Env
from shale.errors import ErrorKind
from shale.service.problems import Problem, bad_request, busy

_NOTHING_TO_END_S = 3600.0


@dataclass(slots=True, eq=False)
class Lease:
    """A snapshot of a client.  ``ends_s`` is on the monotonic clock; ``expires_ms``, since 1970, is for the client."""

    id: str
    moment: Moment
    ends_s: float = 0.0
    expires_ms: int = 0


class Snapshots:
    """The leases of one data port.  A lease may last ``max_snapshot_lifetime``, and does if the client says nothing."""

    def __init__(self, take: TakeMoment, env: Env, http: HttpSection) -> None:
        self.take = take
        self._env = env
        self._leases_max = http.max_snapshots
        self._lifetime_max_ms = round(http.max_snapshot_lifetime * 1000)
        self._leases: dict[str, Lease] = {}
        self._opening = 0
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._leases)

    async def open(self, durability: Durability, lifetime_ms: int | None) -> Lease:
        """Make a snapshot of now.

        Raises:
            Problem: there are too many (429), or the lease would be too long (400).
        """
        lifetime_ms = self._checked(lifetime_ms)
        await self._end_expired()
        count = len(self._leases) + self._opening
        if count >= self._leases_max:
            raise busy(f"there are {count} snapshots already", status=HTTPStatus.TOO_MANY_REQUESTS)
        self._opening += 1  # a reader may have to wait for its newest state
        try:
            moment = await self.take(durability)
        finally:
            self._opening -= 1
        lease = Lease(str(self._env.ids.ulid()), moment)
        self._leases[lease.id] = lease
        self._extend(lease, lifetime_ms)
        return lease

    def renew(self, snapshot_id: str, lifetime_ms: int | None) -> Lease:
        """Let a lease end later, counted from now; raises like ``open`` and ``lease``."""
        lease = self.lease(snapshot_id)
        self._extend(lease, self._checked(lifetime_ms))
        return lease

    async def close(self, snapshot_id: str) -> None:
        """End a lease, if it has not ended; scans that have begun go on."""
        lease = self._leases.pop(snapshot_id, None)
        if lease is not None:
            await lease.moment.close()

    def lease(self, snapshot_id: str) -> Lease:
        """The lease of this id.

        Raises:
            Problem: there is none, or it has ended (410).
        """
        lease = self._leases.get(snapshot_id)
        if lease is None or lease.ends_s <= self._env.clock.monotonic_s():
            raise Problem(HTTPStatus.GONE, f"snapshot {snapshot_id}: its lease is over", kind=ErrorKind.DATA.value)
        return lease

    async def run(self) -> None:
        """End leases when their time has come, until cancelled; then end all."""
        try:
            while True:
                self._changed = anyio.Event()
                with anyio.move_on_after(self._next_end_s()):
                    await self._changed.wait()
                await self._end_expired()
        finally:
            with anyio.CancelScope(shield=True):
                for lease in self._leases.values():
                    await lease.moment.close()
                self._leases.clear()

    def _checked(self, lifetime_ms: int | None) -> int:
        if lifetime_ms is None:
            return self._lifetime_max_ms
        if not 0 < lifetime_ms <= self._lifetime_max_ms:
            raise bad_request(f"lifetime_ms: must be between 1 and {self._lifetime_max_ms}")
        return lifetime_ms

    def _extend(self, lease: Lease, lifetime_ms: int) -> None:
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
