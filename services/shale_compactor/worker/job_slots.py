"""Slots for running jobs, shared fairly by the databases of one process.

A free slot goes to the database with the fewest running jobs among those that have a job to claim; among equals, to
the one whose last slot is the longest ago.
"""

from shale.concurrency.signal import WakeEvent
from shale.env import Clock

_WAKE_GRACE_S = 5.0
"""A database that was woken for a slot and has not polled after so long is passed over: its store may hang."""


class JobSlots:
    """The slots of one process.

    Args:
        limit: number of slots.
        clock: measures how long a woken database takes.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._shares: list[SlotShare] = []
        self._turn = 0

    @property
    def held(self) -> int:
        """Slots in use."""
        return sum(share.held for share in self._shares)

    def set_limit(self, limit: int) -> None:
        """Change the number of slots; jobs above a lower limit go on."""
        self._limit = limit
        self.wake_first()

    def share(self, wake: WakeEvent) -> "SlotShare":
        """Return the share of one database; ``wake`` makes it poll."""
        return SlotShare(self, wake)

    def join(self, share: "SlotShare") -> None:
        """Count a share, until it leaves."""
        if share not in self._shares:
            self._shares.append(share)

    def leave(self, share: "SlotShare") -> None:
        """Forget a share with its slots."""
        if share in self._shares:
            self._shares.remove(share)
        self.wake_first()

    def take(self, share: "SlotShare") -> bool:
        """Give a free slot to a share, if it is its turn."""
        if self.held >= self._limit or self._first() is not share:
            return False
        self._turn += 1
        share.held += 1
        share.wanted -= 1
        share.last_turn = self._turn
        return True

    def wake_first(self) -> None:
        """Wake the share that a free slot belongs to, so that it claims."""
        first = self._first()
        if first is not None and self.held < self._limit:
            if first.woken_s is None:
                first.woken_s = self._clock.monotonic_s()
            first.wake.notify()

    def _first(self) -> "SlotShare | None":
        now_s = self._clock.monotonic_s()
        waiting = [
            share
            for share in self._shares
            if share.wanted > 0 and (share.woken_s is None or now_s - share.woken_s <= _WAKE_GRACE_S)
        ]
        return min(waiting, key=lambda share: (share.held, share.last_turn), default=None)


class SlotShare:
    """The slots of one database.

    Attributes:
        held: slots in use.
        wanted: jobs that could be claimed with more slots.
        last_turn: number of the turn at which it got its last slot.
        woken_s: monotonic time at which it was woken; ``None`` once it has polled.
    """

    def __init__(self, slots: JobSlots, wake: WakeEvent) -> None:
        self.wake = wake
        self.held = 0
        self.wanted = 0
        self.last_turn = 0
        self.woken_s: float | None = None
        self._slots = slots

    def reserve(self, wanted: int) -> int:
        """Take up to ``wanted`` slots; return their number.  The rest is given when it is this share's turn."""
        self._slots.join(self)
        self.wanted, self.woken_s = wanted, None
        taken = 0
        while self.wanted > 0 and self._slots.take(self):
            taken += 1
        self._slots.wake_first()
        return taken

    def release(self, count: int = 1) -> None:
        """Return slots."""
        self.held = max(0, self.held - count)
        if count:
            self._slots.wake_first()

    def close(self) -> None:
        """Return all slots and wait for none."""
        self.held = self.wanted = 0
        self.woken_s = None
        self._slots.leave(self)
