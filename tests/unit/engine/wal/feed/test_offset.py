"""Offsets in stored form, and starts in textual form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.wal.feed.offset import Edge, FeedOffset, FromSeq, parse_start
from shale.errors import InvalidRequestError
from shale.types import U64_MAX

U64S = st.integers(0, U64_MAX)
OFFSETS = st.builds(FeedOffset, U64S, U64S, st.booleans())


@given(OFFSETS)
def test_an_offset_survives_being_stored(offset: FeedOffset) -> None:
    assert FeedOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"wal_id": 1},
        {"wal_id": 1, "seq": -1},
        {"wal_id": True, "seq": 1},
        {"wal_id": 1, "seq": "1"},
        {"wal_id": 1, "seq": 2**64},
        {"wal_id": 1, "seq": 1, "inside": 1},
        {"wal_id": 1, "seq": 1, "inside": True, "rows": 3},
    ],
)
def test_other_things_are_no_offsets(stored: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="not an offset"):
        FeedOffset.from_json(stored)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", Edge.LATEST),
        (" Earliest ", Edge.EARLIEST),
        ("seq:17", FromSeq(17)),
        ("17", FromSeq(17)),
        (17, FromSeq(17)),
    ],
)
def test_starts(text: str | int, start: object) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("digits", [str(2**64), "9" * 5000])
def test_a_start_beyond_64_bits_is_refused(digits: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"start: .* is too large"):
        parse_start(f"seq:{digits}")


@pytest.mark.parametrize("text", ["", "newest", "seq:", "seq:-1", "-1", "1.5", "seq:²"])
def test_an_invalid_start_is_named(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"start: .* none of latest"):
        parse_start(text)
