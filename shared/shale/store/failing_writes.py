"""Which writes the stores of a process do not take: reads may be answered while every write fails, as on a full disk.

A write that is repeated without a limit tells its caller nothing, so health and alerts ask here.
"""

from shale.core.lazy_dataclass import dataclass
from shale.env import Clock
from shale.errors import AccessDenied, ShaleError, UnavailableError
from shale.store.adapter_errors import failure_type
from shale.telemetry.error_types import ErrorType
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

FAILURES = (UnavailableError, AccessDenied)
"""Errors of a write that the store did not take.  Any other one is an answer, such as a conflict."""

GIVEN_UP_S = 60.0
"""A write that was given up counts for this long, unless another write beside it succeeds before."""

_PASSING = (ErrorType.THROTTLE, ErrorType.TIMEOUT, ErrorType.NETWORK)
"""Errors that the next attempt often does not meet: only a second one in a row is logged."""

log = get_logger("store")


@dataclass(slots=True)
class FailingWrite:
    """A write that fails, since ``since_s`` of the monotonic clock; ``last_s``: its last attempt."""

    path: str
    error: ShaleError
    since_s: float
    last_s: float
    attempts: int = 0


class FailingWrites:
    """The failing writes of one process.

    A write that is being repeated counts until it is taken.  One that was given up counts until a write beside it, in
    the same folder, succeeds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, FailingWrite] = {}
        self._given_up: dict[str, FailingWrite] = {}
        self._warned = self._reported = False
        self._began_s = 0.0

    def failed(self, path: str, error: ShaleError) -> None:
        """Count a failed attempt of a write.

        Args:
            path: URL of the object.
            error: names the object and the cause.
        """
        now_s = self._clock.monotonic_s()
        write = self._running.get(path)
        if write is None:
            write = self._given_up.pop(_folder(path), None) or FailingWrite(path, error, now_s, now_s)
            self._running[path] = write
        write.path, write.error, write.last_s, write.attempts = path, error, now_s, write.attempts + 1
        if not self._warned and (write.attempts > 1 or failure_type(error) not in _PASSING):
            self._warned, self._began_s = True, write.since_s
            kind = failure_type(error).value
            log.warning(
                Event.STORE_REQUEST_FAILING, op="put", path=path, error=error, error_type=kind, attempts=write.attempts
            )

    def ended(self, path: str, error: BaseException | None) -> None:
        """Note the end of a write: taken, given up after an error, or cancelled."""
        write, folder = self._running.pop(path, None), _folder(path)
        if error is None or (isinstance(error, ShaleError) and not isinstance(error, FAILURES)):
            self._given_up.pop(folder, None)
        elif write is not None and isinstance(error, FAILURES):
            self._given_up.setdefault(folder, write)
        if self._warned and self.oldest() is None:
            seconds = round(self._clock.monotonic_s() - self._began_s, 3)
            self._warned = self._reported = False
            log.info(Event.STORE_WRITES_RECOVERED, path=path, seconds=seconds)

    @property
    def has_failed(self) -> bool:
        """Whether any write is known to fail; a cheap check for each write."""
        return bool(self._running or self._given_up)

    def oldest(self) -> FailingWrite | None:
        """Return the write that has failed for the longest time; ``None`` if no write fails."""
        stale_s = self._clock.monotonic_s() - GIVEN_UP_S
        for folder in [folder for folder, write in self._given_up.items() if write.last_s < stale_s]:
            del self._given_up[folder]
        writes = [*self._running.values(), *self._given_up.values()]
        return min(writes, key=lambda write: write.since_s, default=None)

    def failing_s(self) -> float:
        """Return for how many seconds the oldest of them has failed; 0 if no write fails."""
        write = self.oldest()
        return 0.0 if write is None else self._clock.monotonic_s() - write.since_s

    def report(self, grace_s: float) -> None:
        """Log an error once if a write has failed for longer than ``grace_s``; called at intervals."""
        write = self.oldest()
        if write is None or self._reported or (seconds := self.failing_s()) < grace_s:
            return
        self._warned = self._reported = True
        self._began_s = write.since_s
        kind = failure_type(write.error).value
        log.error(
            Event.STORE_WRITES_FAILING, path=write.path, error=write.error, error_type=kind, seconds=round(seconds, 3)
        )


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
