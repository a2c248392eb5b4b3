"""Boundary files."""

import pytest

from shale.errors import InvalidObjectState
from shale.format.boundary import decode_boundary, encode_boundary


@pytest.mark.parametrize("value", [0, 1, 12, 2**64 - 1])
def test_round_trip(value: int) -> None:
    assert decode_boundary(encode_boundary(value)) == value


def test_white_space_is_allowed() -> None:
    assert decode_boundary(b" 2\n") == 2


@pytest.mark.parametrize("data", [b"", b" ", b"-1", b"1 2", b"0x1", b"18446744073709551616", b"9" * 5000, b"\xff"])
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidObjectState, match="boundary file holds"):
        decode_boundary(data, path="db/gc/manifest.boundary")
