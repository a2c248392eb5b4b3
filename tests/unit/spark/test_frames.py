"""What driver and tasks say survives the wire, and nonsense is refused."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import CorruptionError
from shale_spark.compaction import frames
from shale_spark.compaction.frames import Accepted, Failed, Finished, Hello, Over, Refused, Report, Start
from tests.unit.compactor.values import sst, ulid


@pytest.mark.parametrize(
    "message",
    [
        Hello("token", 3, 17),
        Report(2, (sst(5), sst(6, keys=(b"", b"\xff" * 70_000))), 10, 20, (1, 2), 3, 4, "why"),
        Report(0, ()),
        Finished(2, ulid(7, 9)),
        Finished(0, None),
        Failed(b"\x00"),
        Start(1, sst(5)),
        Start(0, None),
        Accepted(),
        Refused(),
        Over(),
    ],
)
def test_a_message_comes_back_as_it_was(message: frames.Message) -> None:
    """Types and values, ULIDs and SSTs included."""
    frame = frames.encode(message)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert frames.decode(frame[4:]) == message


@given(st.binary(max_size=64) | st.lists(st.none() | st.integers() | st.text()).map(repr).map(str.encode))
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    """A scanner of ports must not bring the driver down."""
    with pytest.raises(CorruptionError):
        frames.decode(body)


@pytest.mark.parametrize("body", [["Hello"], ["Nobody", 1], [[], 1], "Hello", {"a": 1}, ["Report", *range(9)]])
def test_messages_with_other_fields_are_refused(body: object) -> None:
    """As another release might send them."""
    with pytest.raises(CorruptionError):
        frames.decode(msgpack.packb(body))
