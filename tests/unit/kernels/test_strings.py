"""Lists of byte strings to columns, by the kernel and in plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.kernels import strings
from shale.kernels.strings import strings_column

LISTS = st.lists(st.binary(max_size=40), max_size=60)


def column_of(items: list[bytes], start: int, end: int, *, plain: bool) -> list[bytes]:
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(strings, "use_kernels", lambda: False)
        data, offsets = strings_column(items, start, end)
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert len(data) == offsets[-1]
    bounds = offsets.tolist()
    return [data[first:last].tobytes() for first, last in pairwise(bounds)]


@pytest.mark.parametrize("plain", [False, True])
@given(items=LISTS, start=st.integers(0, 60), length=st.integers(0, 60))
def test_a_column_has_the_strings_of_its_range(plain: bool, items: list[bytes], start: int, length: int) -> None:
    start = min(start, len(items))
    end = min(start + length, len(items))
    assert column_of(items, start, end, plain=plain) == items[start:end]


@pytest.mark.parametrize("plain", [False, True])
def test_long_lists_are_read_in_steps(plain: bool) -> None:
    items = [b"%d" % number * (number % 3) for number in range(20_000)]
    assert column_of(items, 7, 19_999, plain=plain) == items[7:19_999]


@pytest.mark.parametrize("plain", [False, True])
def test_a_string_of_another_type_is_joined_as_well(plain: bool) -> None:
    items = [b"%d" % number for number in range(10_000)]
    items[9_000] = bytearray(b"other")  # type: ignore[call-overload]
    assert column_of(items, 0, 10_000, plain=plain) == list(map(bytes, items))
