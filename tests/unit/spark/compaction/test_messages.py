"""Messages between driver and tasks: round trips, and refusal of invalid ones."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale_spark.compaction import messages
from shale_spark.compaction.messages import (
    AttemptRefused,
    RangeDone,
    RangeFinished,
    RangeStart,
    ReportAccepted,
    TaskFailed,
    TaskHello,
    TaskReport,
)
from tests.unit.compactor.values import sst, ulid


@pytest.mark.parametrize(
    "message",
    [
        TaskHello("token", 3, 17),
        TaskReport(2, (sst(5), sst(6, keys=(b"", b"\xff" * 70_000))), 10, 20, (1, 2), 3, 4, "why"),
        TaskReport(0, ()),
        RangeFinished(2, ulid(7, 9)),
        RangeFinished(0, None),
        TaskFailed(b"\x00"),
        RangeStart(1, sst(5)),
        RangeStart(0, None),
        ReportAccepted(),
        AttemptRefused(),
        RangeDone(),
    ],
)
def test_a_message_comes_back_as_it_was(message: messages.Message) -> None:
    """Types and values, ULIDs and SSTs included."""
    frame = messages.encode(message)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert messages.decode(frame[4:]) == message


@given(st.binary(max_size=64) | st.lists(st.none() | st.integers() | st.text()).map(repr).map(str.encode))
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    """A port scanner must not end the driver."""
    with pytest.raises(CorruptionError):
        messages.decode(body)


@pytest.mark.parametrize(
    "body", [["TaskHello"], ["Unknown", 1], [[], 1], "TaskHello", {"a": 1}, ["TaskReport", *range(9)]]
)
def test_messages_with_other_fields_are_refused(body: object) -> None:
    """Another release may send them."""
    with pytest.raises(CorruptionError):
        messages.decode(msgpack.packb(body))


@pytest.mark.parametrize(
    "body",
    [
        ["TaskReport", 0, 5, 0, 0, [0, 0], 0, 0, ""],
        ["TaskReport", 0, ["sst"], 0, 0, [0, 0], 0, 0, ""],
        ["TaskReport", 0, [], "many", 0, [0, 0], 0, 0, ""],
        ["TaskReport", 0, [], 0, 0, None, 0, 0, ""],
        ["TaskHello", 5, 0, 0],
        ["TaskFailed", "text"],
        ["RangeFinished", 0, msgpack.ExtType(2, bytes(17))],
        ["RangeStart", 0, msgpack.ExtType(1, msgpack.packb([bytes(16), 7, (1 << 64) - 1]))],
        ["RangeStart", 0, msgpack.ExtType(1, msgpack.packb([bytes(16), "7", b""]))],
    ],
)
def test_messages_with_fields_of_other_types_are_refused(body: object) -> None:
    """The driver would end with a TypeError while it applies them."""
    with pytest.raises(CorruptionError):
        messages.decode(msgpack.packb(body))
