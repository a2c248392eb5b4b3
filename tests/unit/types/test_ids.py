"""ULIDs: text, order and strictness, compared with ``ulid.ULID``; ids are reproducible from a seed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from shale.env import Env, InlineCpu
from shale.types import Ulid
from tests.clocks import FixedClock

ids = st.integers(0, 2**128 - 1).map(Ulid)


@given(ids)
def test_text_is_that_of_the_library_and_reads_back(value: Ulid) -> None:
    text = str(value)
    assert text == str(ULID(value.to_bytes(16, "big")))
    assert Ulid.parse(text) == value


@given(ids, ids)
def test_ids_are_ordered_as_their_texts(left: Ulid, right: Ulid) -> None:
    assert (left < right) == (str(left) < str(right))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("01m7yr99715hth48m6nqffpjpg", id="lower case"),
        pytest.param("01M7YR99715HTH48M6NQFFPJP", id="too short"),
        pytest.param("01M7YR99715HTH48M6NQFFPJPG0", id="too long"),
        pytest.param("81M7YR99715HTH48M6NQFFPJPG", id="more than 128 bits"),
        pytest.param("01M7YR99715HTH48M6NQFFPJPU", id="a letter outside the alphabet"),
        pytest.param("O1M7YR99715HTH48M6NQFFPJPG", id="an O for a 0"),
    ],
)
def test_only_the_canonical_form_is_read(text: str) -> None:
    assert Ulid.parse(text) is None


def test_generated_ids_have_the_time_of_the_clock_and_repeat_with_the_seed() -> None:
    first, second = (Env(FixedClock(), random.Random(7), InlineCpu()).ids for _ in range(2))
    made = [first.ulid() for _ in range(3)]
    assert made == [second.ulid() for _ in range(3)]
    assert len(set(made)) == 3
    assert {value.ms for value in made} == {1_700_000_000_000}
    assert first.ulid(at_least_ms=1_800_000_000_000).ms == 1_800_000_000_000
    assert first.ulid(at_least_ms=5).ms == 1_700_000_000_000
