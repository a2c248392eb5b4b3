"""Decides what a standby does next.  Nothing here has an effect, and no decision can lose a row: epochs ensure that.

All times are seconds of the standby's own monotonic clock.  No time that another host wrote is compared with it.

Source: docs/adr/0015-standby-by-challenge.md.
"""

from enum import StrEnum

from shale.core.lazy_dataclass import dataclass


class ActiveState(StrEnum):
    """What a standby knows about the writer of the newest epoch.

    ``NONE``: there was never a writer.  ``CLOSED``: it has closed the database.  ``SIGNED``: it keeps a sign of life.
    ``UNSIGNED``: it has not closed, and keeps no sign: a SlateDB process, or one whose sign expired and was removed.
    """

    NONE = "none"
    CLOSED = "closed"
    SIGNED = "signed"
    UNSIGNED = "unsigned"


class Reason(StrEnum):
    """Why a standby takes over."""

    NEW = "new"
    CLOSED = "closed"
    SILENT = "silent"
    UNSIGNED = "unsigned"
    PROMOTED = "promoted"


class Action(StrEnum):
    """What a standby does next."""

    WAIT = "wait"
    CHALLENGE = "challenge"
    TAKE_OVER = "take_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPolicy:
    """The settings of a standby, in seconds.

    ``poll_interval_s``: between two looks at the manifest and at the active writer.  ``takeover_after_s``: without
    evidence of life for this long, the active writer is replaced.  ``unsigned_takeover_after_s``: the same for one that
    keeps no sign of life, since its last change; ``None``: never.
    """

    poll_interval_s: float = 1.0
    takeover_after_s: float = 6.0
    unsigned_takeover_after_s: float | None = 60.0

    @property
    def challenge_after_s(self) -> float:
        """The time without evidence after which the active writer is challenged."""
        return self.takeover_after_s / 3

    @property
    def answer_within_s(self) -> float:
        """The time in which the active writer must answer: several of its polls."""
        return self.takeover_after_s - self.challenge_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a standby has seen.

    ``alive_s``: the last evidence that the active writer lives: an answer over HTTP, a new sign, or a new epoch.
    ``changed_s``: the last change of the manifest or the WAL that only a writer makes.  ``challenged_s``: when the
    challenge was written that has no answer yet.  ``read_s``: when the last read of the manifest began that succeeded.
    """

    state: ActiveState
    alive_s: float
    changed_s: float
    challenged_s: float | None
    read_s: float


def decide(seen: Observed, policy: StandbyPolicy, now_s: float) -> tuple[Action, Reason | None]:
    """Return the next action, and for a takeover its reason."""
    match seen.state:
        case ActiveState.NONE:
            return Action.TAKE_OVER, Reason.NEW
        case ActiveState.CLOSED:
            return Action.TAKE_OVER, Reason.CLOSED
        case ActiveState.UNSIGNED:
            limit_s = policy.unsigned_takeover_after_s
            if limit_s is not None and seen.read_s - seen.changed_s >= limit_s:
                return Action.TAKE_OVER, Reason.UNSIGNED
            return Action.WAIT, None
        case ActiveState.SIGNED:
            return _of_signed(seen, policy, now_s)


def _of_signed(seen: Observed, policy: StandbyPolicy, now_s: float) -> tuple[Action, Reason | None]:
    if now_s - seen.alive_s < policy.challenge_after_s:
        return Action.WAIT, None
    if seen.challenged_s is None:
        return Action.CHALLENGE, None
    # Measured to the last read, not to now: while the store does not answer, an answer cannot be seen either.
    has_had_time = seen.read_s - seen.challenged_s >= policy.answer_within_s
    if has_had_time and seen.read_s - seen.alive_s >= policy.takeover_after_s:
        return Action.TAKE_OVER, Reason.SILENT
    return Action.WAIT, None
