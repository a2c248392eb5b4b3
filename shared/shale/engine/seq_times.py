"""When which sequence number was reached (docs/reference/format.md 14)."""

from datetime import UTC, datetime

from shale.core.argument_types import require_at_least
from shale.core.ttl import Timestamp, timestamp_ms
from shale.format.sequence_tracker import SequenceTracker


def seq_at(tracker: SequenceTracker, time: Timestamp, *, round_up: bool) -> int | None:
    """Return the sequence number of the last known point at or before a time, or of the first one at or after it.

    Raises:
        InvalidRequestError: the time is neither a ``datetime`` with a time zone nor milliseconds since 1970.
    """
    return tracker.time_to_seq(timestamp_ms(time, name="time") // 1000, round_up=round_up)


def time_of(tracker: SequenceTracker, seq: int, *, round_up: bool) -> datetime | None:
    """Return the time of the last known point at or before a sequence number, or of the first one at or after it."""
    require_at_least("seq", seq, 0)
    second = tracker.seq_to_time(seq, round_up=round_up)
    return None if second is None else datetime.fromtimestamp(second, UTC)
