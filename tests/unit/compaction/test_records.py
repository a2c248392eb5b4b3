"""The record of a compaction: what counts as an attempt, its stored form, and documents that are refused."""

import json
from dataclasses import replace

import pytest

from shale.compaction.records import (
    Attempt,
    AttemptResult,
    CompactionKind,
    CompactionRecord,
    decode_record,
    encode_record,
    request_again,
)
from shale.compaction.requests import Sources, Spec
from shale.errors import CorruptionError
from tests.unit.compactor.values import S, drain, spec, ulid

EMPTY = CompactionRecord(id=ulid(9))
FULL = CompactionRecord(
    id=ulid(9),
    spec=spec((2, 1), (5,), to=5, segment=b"log"),
    kind=CompactionKind.EXTERNAL,
    status=S.FAILED,
    started_ms=11,
    finished_ms=12,
    attempts=(
        Attempt(worker_id="a", ended_ms=13, result=AttemptResult.LOST, outputs=14),
        Attempt(worker_id="b", ended_ms=15, result=AttemptResult.FAILED, outputs=16, error="disk"),
    ),
    attempts_count=17,
    spent=18,
    not_before_ms=19,
    error="gave up",
    output_ssts=20,
    output_bytes=21,
    retry_of=ulid(8),
)
STORED = {
    "format": 1,
    "id": str(ulid(9)),
    "spec": {
        "Spec": {
            "Tiered": {
                "segment": [108, 111, 103],
                "sources": [{"SstView": str(ulid(2))}, {"SstView": str(ulid(1))}, {"SortedRun": 5}],
                "destination": 5,
            }
        }
    },
    "kind": "external",
    "status": "failed",
    "started_ms": 11,
    "finished_ms": 12,
    "attempts": [
        {"worker_id": "a", "ended_ms": 13, "result": "lost", "outputs": 14, "error": None},
        {"worker_id": "b", "ended_ms": 15, "result": "failed", "outputs": 16, "error": "disk"},
    ],
    "attempts_count": 17,
    "spent": 18,
    "not_before_ms": 19,
    "error": "gave up",
    "output_ssts": 20,
    "output_bytes": 21,
    "retry_of": str(ulid(8)),
}


def decoded(fields: object) -> CompactionRecord:
    return decode_record(json.dumps(fields).encode(), path="p")


def test_the_stored_form():
    assert json.loads(encode_record(FULL)) == STORED
    assert decoded(STORED) == FULL
    drained = replace(EMPTY, spec=drain(b"log", (2,), (1,)))
    for record in (EMPTY, drained):
        assert decode_record(encode_record(record), path="p") == record


def test_fields_of_a_later_release_are_ignored():
    later = {**STORED, "more": 1, "attempts": [{**each, "more": 1} for each in STORED["attempts"]]}
    assert decoded(later) == FULL


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"id": "01J"}, id="the id is no ULID"),
        pytest.param({"id": 9}, id="the id is a number"),
        pytest.param({"retry_of": "01J"}, id="retry_of is no ULID"),
        pytest.param({"spec": "Full"}, id="a request without sources"),
        pytest.param({"spec": {"Spec": {"sources": []}}}, id="a request without destination"),
        pytest.param({"spec": {"Spec": {}}}, id="a malformed request"),
        pytest.param({"status": "ended"}, id="unknown status"),
        pytest.param({"kind": "other"}, id="unknown kind"),
        pytest.param({"spent": None}, id="a count is missing"),
        pytest.param({"attempts": [{"worker_id": "a"}]}, id="half an attempt"),
        pytest.param({"attempts": None}, id="no list"),
        pytest.param({"output_bytes": 1e999}, id="an infinite count"),
    ],
)
def test_a_malformed_record_is_corruption(changed):
    with pytest.raises(CorruptionError, match="not the record of a compaction") as error:
        decoded({**STORED, **changed})
    assert error.value.path == "p"


def test_the_spec_of_a_record_names_its_destination():
    with pytest.raises(CorruptionError, match=r"Sources\(.*\) is not a spec"):
        decoded({**STORED, "spec": {"Spec": {"sources": []}}})


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_other_bytes_are_corruption(data):
    with pytest.raises(CorruptionError, match="not the record of a compaction"):
        decode_record(data, path="p")


def test_another_format_is_refused_by_its_number():
    with pytest.raises(CorruptionError, match=r"format 2 of the record is not known") as error:
        decoded({**STORED, "format": 2})
    assert error.value.path == "p"


def attempt(result: AttemptResult = AttemptResult.FAILED, outputs: int = 0, error: str | None = None) -> Attempt:
    return Attempt(worker_id="w", ended_ms=1, result=result, outputs=outputs, error=error)


@pytest.mark.parametrize(
    ("before", "last", "counts"),
    [
        pytest.param((), attempt(outputs=3), True, id="an error counts although output is left"),
        pytest.param((), attempt(AttemptResult.LOST), True, id="lost without output"),
        pytest.param((), attempt(AttemptResult.LOST, 1), False, id="lost after its first output"),
        pytest.param((attempt(outputs=4),), attempt(AttemptResult.LOST, 4), True, id="lost without new output"),
        pytest.param((attempt(outputs=4),), attempt(AttemptResult.LOST, 5), False, id="lost with new output"),
        pytest.param((attempt(outputs=9), attempt(outputs=4)), attempt(AttemptResult.LOST, 5), False, id="the last"),
    ],
)
def test_which_attempts_count(before, last, counts):
    record = replace(EMPTY, attempts=before, attempts_count=7, spent=3, not_before_ms=99)
    found = record.with_attempt(last, not_before_ms=50)
    assert found == replace(record, attempts=(*before, last), attempts_count=8, spent=3 + counts, not_before_ms=50)
    assert record.with_attempt(last).not_before_ms == 0


def test_the_last_fifty_attempts_are_kept_and_all_are_counted():
    record = EMPTY
    for number in range(52):
        record = record.with_attempt(attempt(outputs=number))
    assert [each.outputs for each in record.attempts] == list(range(2, 52))
    assert (record.attempts_count, record.spent) == (52, 52)


def test_long_errors_are_cut_off():
    long = "x" * 999 + "yz"
    (kept,) = EMPTY.with_attempt(attempt(error=long)).attempts
    assert kept.error == long[:1000]
    assert EMPTY.with_attempt(attempt()).attempts[0].error is None
    ended = EMPTY.ended(S.FAILED, 12, long)
    assert (ended.status, ended.finished_ms, ended.error) == (S.FAILED, 12, long[:1000])
    assert EMPTY.ended(S.COMPLETED, 13) == replace(EMPTY, status=S.COMPLETED, finished_ms=13)


@pytest.mark.parametrize(
    ("what", "request_"),
    [
        pytest.param(
            spec((2, 1), to=7, segment=b"log"), Sources(l0_view_ids=(ulid(2), ulid(1)), segment=b"log"), id="L0s"
        ),
        pytest.param(spec((2, 1), (5,), to=5), Spec(spec((2, 1), (5,), to=5)), id="L0s and a run"),
        pytest.param(drain(b"log", (2,)), Spec(drain(b"log", (2,))), id="drain"),
    ],
)
def test_a_retry_chooses_only_a_new_destination_again(what, request_):
    assert request_again(what) == request_
