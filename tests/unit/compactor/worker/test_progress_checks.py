"""Progress that another process persisted is validated before it is used.

Source: docs/reference/protocol.md 6.9, 6.11.
"""

import pytest

from shale.types import (
    EVERYTHING,
    CompactionContext,
    KeyRange,
    Seq,
    Subcompaction,
    excluded,
    included,
)
from shale_compactor.worker.progress_checks import DamagedProgress, check_context, validate_progress
from tests.unit.compactor.values import sst


def half_open(start, end):
    return KeyRange.half_open(start, end)


def ctx(*ranges, outputs=(), seq=9):
    subs = tuple(Subcompaction(range=each, output_ssts=outputs) for each in ranges)
    return CompactionContext(subcompactions=subs, retention_min_seq=Seq(seq))


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param((EVERYTHING,), id="one"),
        pytest.param((half_open(None, b"g"), half_open(b"g", b"p"), half_open(b"p", None)), id="three"),
        pytest.param((KeyRange(end=included(b"g")), KeyRange(start=excluded(b"g"))), id="cut after a key"),
    ],
)
def test_ranges_that_cover_all_keys_are_taken_as_they_are(ranges):
    check_context(ctx(*ranges))


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param((), id="none"),
        pytest.param((half_open(None, b"g"), half_open(b"h", None)), id="a gap"),
        pytest.param((half_open(None, b"h"), half_open(b"g", None)), id="an overlap"),
        pytest.param((half_open(b"g", None), half_open(None, b"g")), id="no order"),
        pytest.param((half_open(b"a", None),), id="no beginning"),
        pytest.param((half_open(None, b"g"), half_open(b"g", b"p")), id="no end"),
        pytest.param((EVERYTHING, EVERYTHING), id="twice"),
    ],
)
def test_ranges_that_would_lose_or_repeat_rows_are_refused(ranges):
    with pytest.raises(DamagedProgress):
        check_context(ctx(*ranges))


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        pytest.param(None, None, id="no plan yet"),
        pytest.param(ctx(EVERYTHING, outputs=(sst(1),)), None, id="the same"),
        pytest.param(ctx(EVERYTHING, outputs=(sst(1), sst(2))), None, id="longer"),
        pytest.param(ctx(EVERYTHING), "outputs", id="shorter"),
        pytest.param(ctx(EVERYTHING, outputs=(sst(2),)), "outputs", id="other"),
        pytest.param(ctx(EVERYTHING, outputs=(sst(1),), seq=8), "barrier", id="other barrier"),
        pytest.param(ctx(half_open(None, b"g"), half_open(b"g", None)), "ranges", id="other ranges"),
    ],
)
def test_progress_only_grows(ours, reason):
    found = validate_progress(ctx(EVERYTHING, outputs=(sst(1),)), ours)
    assert (found is None) if reason is None else (reason in found)
    assert validate_progress(None, ours) is None
