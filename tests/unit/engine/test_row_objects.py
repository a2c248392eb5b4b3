"""Columns as objects."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.row_objects import byte_strings


@given(st.lists(st.binary(max_size=4), max_size=6), st.integers(0, 3), st.booleans())
def test_strings_are_cut_at_their_offsets(strings: list[bytes], before: int, one_length: bool) -> None:
    """Also of none: many keys may be asked for of which no SST has a value."""
    if one_length:
        strings = [string.ljust(4, b"x") for string in strings]
    data = np.frombuffer(bytes(before) + b"".join(strings) + b"rest", np.uint8)
    offsets = np.cumsum([before, *map(len, strings)]).astype(np.int64)
    assert byte_strings(data, offsets) == strings
