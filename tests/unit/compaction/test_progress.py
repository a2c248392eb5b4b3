"""Progress of a compaction: inputs that the outputs have passed, bytes, and the extrapolated end."""

import pytest

from shale.compaction.progress import CompactionProgress, outputs_of, passed_inputs, progress_of
from shale.types import CompactionContext, KeyRange, Seq, SstView, Subcompaction, included
from tests.unit.compactor.values import S, entry, spec, sst, view

WHAT = spec(runs=(2, 1), to=1)


def part(start: bytes | None, end: bytes | None, *last_keys: bytes | None, size: int = 10) -> Subcompaction:
    """Return a key range with an output SST for each last key."""
    outputs = tuple(sst(100 + index, size, (b"a", last)) for index, last in enumerate(last_keys))
    return Subcompaction(range=KeyRange.half_open(start, end), output_ssts=outputs)


def running(*parts: Subcompaction):
    return entry(9, WHAT, S.RUNNING, ctx=CompactionContext(subcompactions=parts, retention_min_seq=Seq(0)))


@pytest.mark.parametrize(
    ("parts", "is_passed"),
    [
        pytest.param((), False, id="no ranges yet"),
        pytest.param((part(None, None),), False, id="no output"),
        pytest.param((part(None, None, b"l"),), False, id="before its last key"),
        pytest.param((part(None, None, b"m"),), True, id="at its last key"),
        pytest.param((part(None, None, b"z", b"l"),), False, id="the last output counts"),
        pytest.param((part(None, None, None),), False, id="an output without last key"),
        pytest.param((part(None, b"j", b"i"), part(b"j", None)), False, id="the first of its two ranges"),
        pytest.param((part(None, b"j"), part(b"j", None, b"m")), False, id="the second one"),
        pytest.param((part(None, b"j", b"m"), part(b"j", None, b"m")), True, id="both ranges"),
        pytest.param((part(None, b"g"), part(b"g", b"n", b"m"), part(b"n", None)), True, id="ranges beside it"),
        pytest.param((part(None, b"g", b"z"),), False, id="no range has it"),
    ],
)
def test_an_input_is_passed_if_nothing_of_it_is_read_again(parts, is_passed):
    mine = view(1, keys=(b"g", b"m"))
    assert passed_inputs([mine], parts) == ([mine] if is_passed else [])


def test_a_view_without_end_is_never_passed_and_a_projection_ends_early():
    all_keys = SstView(id=view(1).id, sst=sst(1, keys=(b"a", None)))
    narrow = view(2, keys=(b"a", b"z"), visible=KeyRange(end=included(b"c")))
    assert passed_inputs([all_keys, narrow], [part(None, None, b"c")]) == [narrow]


def test_outputs_are_those_of_the_result_or_of_all_ranges():
    assert outputs_of(entry(9, WHAT, S.COMPACTED, output_ssts=(sst(1), sst(2)))) == (sst(1), sst(2))
    parts = part(None, b"j", b"b", b"i"), part(b"j", None, b"m")
    assert outputs_of(running(*parts)) == (*parts[0].output_ssts, *parts[1].output_ssts)


INPUTS = (view(1, 100, (b"a", b"f")), view(2, 60, (b"g", b"z")))


@pytest.mark.parametrize(
    ("parts", "processed", "percentage"),
    [
        pytest.param((part(None, None, b"c", b"d", size=20),), 40, 25.0, id="written, before any input is passed"),
        pytest.param((part(None, None, b"c", b"f", size=20),), 100, 62.5, id="read, since little is written"),
        pytest.param((part(None, None, b"f", size=110),), 110, 68.8, id="rounded to one digit"),
        pytest.param((part(None, None, b"c", size=161),), 160, 99.9, id="more is written than read"),
    ],
)
def test_the_larger_one_of_written_and_read_bytes_counts(parts, processed, percentage):
    outputs = [each for one in parts for each in one.output_ssts]
    assert progress_of(running(*parts), INPUTS) == CompactionProgress(
        input_ssts_processed=1 if outputs[-1].info.last_entry == b"f" else 0,
        input_ssts=2,
        output_ssts=len(outputs),
        output_bytes=sum(each.estimated_size_bytes for each in outputs),
        bytes_processed=processed,
        bytes_total=160,
        percentage=percentage,
    )


@pytest.mark.parametrize("status", list(S))
def test_progress_without_published_output(status):
    """A Compacted or Completed one has read all inputs, whatever it wrote."""
    is_done = status in (S.COMPACTED, S.COMPLETED)
    with_inputs = progress_of(entry(9, WHAT, status), INPUTS)
    assert (with_inputs.input_ssts_processed, with_inputs.bytes_processed, with_inputs.percentage) == (
        (2, 160, 100.0) if is_done else (0, 0, 0.0)
    )
    assert progress_of(entry(9, WHAT, status), None) == CompactionProgress(
        input_ssts_processed=None,
        input_ssts=None,
        output_ssts=0,
        output_bytes=0,
        bytes_processed=0,
        bytes_total=None,
        percentage=100.0 if is_done else None,
    )


def test_inputs_without_bytes():
    assert progress_of(running(part(None, None, b"c")), [view(1, 0)]).percentage == 0.0
    assert progress_of(entry(9, WHAT, S.COMPACTED), []).percentage == 100.0
    assert progress_of(running(part(None, None, b"c", size=1)), [view(1, 1)]).percentage == 99.9


def at(processed: int, total: int | None) -> CompactionProgress:
    return CompactionProgress(
        input_ssts_processed=None,
        input_ssts=None,
        output_ssts=0,
        output_bytes=0,
        bytes_processed=processed,
        bytes_total=total,
        percentage=None,
    )


@pytest.mark.parametrize(
    ("progress", "bytes_then", "end_ms"),
    [
        pytest.param(at(40, 100), 10, 5_600 + 600 * 60 // 30, id="30 bytes in 600 ms"),
        pytest.param(at(11, 100), 10, 5_600 + 600 * 89, id="one byte"),
        pytest.param(at(10, 100), 10, None, id="no gain"),
        pytest.param(at(9, 100), 10, None, id="less than before"),
        pytest.param(at(100, 100), 10, 5_600, id="at the end"),
        pytest.param(at(40, None), 10, None, id="an unknown total"),
    ],
)
def test_the_end_is_extrapolated(progress, bytes_then, end_ms):
    assert progress.completion_ms(5_000, bytes_then, 5_600) == end_ms


@pytest.mark.parametrize(("now_ms", "end_ms"), [(5_001, 5_003), (5_000, None), (4_999, None)])
def test_no_end_is_extrapolated_from_a_clock_that_stands_or_goes_back(now_ms, end_ms):
    assert at(40, 100).completion_ms(5_000, 10, now_ms) == end_ms
