"""Requests: their JSON, their resolved sources, and rejections before a write."""

from typing import Any

import pytest

from shale.compaction.requests import (
    Full,
    FullSegment,
    Sources,
    Spec,
    parse_request,
    parse_sources,
    request_json,
    resolve,
)
from shale.compaction.submission import plan_submission
from shale.errors import InvalidCompaction, InvalidRequestError
from shale.types import RunId
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, tree, ulid

STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)), new=tree((20,)))
L0_2, L0_1 = str(ulid(2)), str(ulid(1))

REQUESTS = [
    pytest.param("Full", Full(), id="full"),
    pytest.param({"FullSegment": {"segment": [108, 111, 103]}}, FullSegment(b"log"), id="segment"),
    pytest.param(
        {"Spec": {"Tiered": {"segment": [], "sources": [{"SstView": L0_1}, {"SortedRun": 3}], "destination": 3}}},
        Spec(spec((1,), (3,), to=3)),
        id="tiered",
    ),
    pytest.param(
        {"Spec": {"DrainSegment": {"segment": [255, 0], "sources": [{"SstView": L0_1}, {"SortedRun": 6}]}}},
        Spec(drain(b"\xff\x00", (1,), (6,))),
        id="drain",
    ),
    pytest.param(
        {"Spec": {"segment": [], "sources": [{"SortedRun": 3}, {"SortedRun": 2}]}},
        Sources(sorted_runs=(RunId(3), RunId(2))),
        id="destination left open",
    ),
]


@pytest.mark.parametrize(("value", "request_"), REQUESTS)
def test_json_and_back(value, request_):
    assert parse_request(value) == request_
    assert request_json(request_) == value


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        ({"Full": None}, Full()),
        ({"FullSegment": {"segment": "log"}}, FullSegment(b"log")),
        ({"FullSegment": {}}, FullSegment(b"")),
        ({"Spec": {"sources": [{"SortedRun": 2}], "destination": 2}}, Spec(spec(runs=(2,), to=2))),
        ({"Spec": {"sources": [{"Sst": L0_1.lower()}], "destination": 9}}, Spec(spec((1,), to=9))),
    ],
)
def test_older_and_shorter_forms_are_read(value, request_):
    assert parse_request(value) == request_


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("full", "write"),
        ({}, "write"),
        ({"Full": None, "Spec": {}}, "write"),
        ({"Everything": {}}, "'Everything' is none of"),
        ({"FullSegment": {"prefix": []}}, r"FullSegment\.prefix: no such field"),
        ({"FullSegment": {"segment": [256]}}, r"FullSegment\.segment"),
        ({"FullSegment": []}, "FullSegment: a table"),
        ({"Spec": {"Tiered": {}}}, r"Spec\.Tiered\.sources"),
        ({"Spec": {"Tiered": {"sources": []}, "destination": 1}}, "nothing beside it"),
        ({"Spec": {"sources": "SR1"}}, r"Spec\.sources"),
        ({"Spec": {"sources": [{"SortedRun": 1}, {"Run": 2}]}}, r"Spec\.sources\[1\]: 'Run'"),
        ({"Spec": {"sources": [{"SortedRun": True}]}}, r"Spec\.sources\[0\]: True"),
        ({"Spec": {"sources": [{"SortedRun": 2**32}]}}, "not the id of a sorted run"),
        ({"Spec": {"sources": [{"SstView": "01J"}]}}, "'01J' is not a ULID"),
        ({"Spec": {"sources": [], "destination": -1}}, r"Spec\.destination"),
    ],
)
def test_an_invalid_request_names_the_field(value, message):
    with pytest.raises(InvalidRequestError, match=message):
        parse_request(value)


def test_a_body_that_is_no_request_is_refused():
    nonsense: Any = "Full"
    with pytest.raises(InvalidRequestError, match=r"'Full' is no request: Full\(\), "):
        resolve(nonsense, STATE, compactions())
    text: Any = str(ulid(4))
    with pytest.raises(InvalidRequestError, match="is no Ulid; parse_sources"):
        Sources(l0_view_ids=(text,))


def test_sources_as_people_write_them():
    assert parse_sources(f"SR3, sr2,1,{L0_1}") == ((ulid(1),), (3, 2, 1))
    for text in ("", "SR", "SR3,,SR2", "L0", "SR-1"):
        with pytest.raises(InvalidRequestError, match="sources"):
            parse_sources(text)


def test_full_takes_every_tree_with_runs_and_no_l0():
    assert resolve(Full(), STATE, compactions()) == (
        spec(runs=(3, 2, 1), to=1),
        spec(runs=(8, 6), to=6, segment=b"log"),
    )
    assert resolve(Full(), manifest(tree((2, 1))), compactions()) == ()
    assert resolve(FullSegment(b"log"), STATE, compactions()) == (spec(runs=(8, 6), to=6, segment=b"log"),)
    assert resolve(FullSegment(b""), STATE, compactions()) == (spec(runs=(3, 2, 1), to=1),)


def test_a_segment_that_cannot_be_compacted():
    with pytest.raises(
        InvalidCompaction, match=r"segment 78 does not exist; there are 6c6f67, 6e6577 \(in hex\)"
    ) as refused:
        resolve(FullSegment(b"x"), STATE, compactions())
    assert refused.value.rule == "V3"
    with pytest.raises(InvalidCompaction, match="no sorted runs; its 1 L0s"):
        resolve(FullSegment(b"new"), STATE, compactions())


def test_sources_are_put_in_order_and_get_a_destination():
    def only(**fields):
        return resolve(Sources(**fields), STATE, compactions())[0]

    assert only(sorted_runs=(RunId(1), RunId(2), RunId(3))) == spec(runs=(3, 2, 1), to=1)
    assert only(l0_view_ids=(ulid(1), ulid(2))) == spec((2, 1), to=9)
    assert only(l0_view_ids=(ulid(1),), destination=RunId(11)) == spec((1,), to=11)
    assert only(sorted_runs=(RunId(6), RunId(8)), segment=b"log") == spec(runs=(8, 6), to=6, segment=b"log")


def test_an_open_destination_stays_clear_of_what_is_going_on():
    other = entry(50, spec((14, 13), to=9, segment=b"log"), S.RUNNING)
    request = Sources(l0_view_ids=(ulid(2), ulid(1)))
    (planned,) = plan_submission(STATE, compactions(other), request, lambda _: ulid(60))
    assert planned.spec == spec((2, 1), to=10)


def refusal(request, *others):
    with pytest.raises(InvalidCompaction) as refused:
        plan_submission(STATE, compactions(*others), request, ulid)
    return refused.value.rule, str(refused.value)


@pytest.mark.parametrize(
    ("what", "rule", "told"),
    [
        (spec((4, 3), to=9), "V7", f"the oldest 2 are {L0_2}, {L0_1}, newest first"),
        (spec(runs=(3, 1), to=1), "V10", "leave out SR2, which is between them"),
        (spec(runs=(3, 2), to=3), "V11", "use destination 2"),
        (spec((2, 1), to=3), "V5", "use destination 9"),
        (
            spec((4, 3, 2, 1), (3,), to=2),
            "V6",
            "; name it as a source too, or use destination 3",
        ),
        (spec(runs=(9,), to=9), "V4", "SR3, SR2, SR1"),
        (drain(b"log", (14,), (8, 6)), "V8", f"drain {ulid(14)}, {ulid(13)}, SR8, SR6"),
        (drain(b""), "V1", "SR3, SR2, SR1"),
    ],
)
def test_a_refusal_tells_what_would_be_valid(what, rule, told):
    found, message = refusal(Spec(what))
    assert found == rule
    assert message.startswith(f"{rule}: ")
    assert told in message
    assert "-> " in message, "the spec is told"


@pytest.mark.parametrize("status", [S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED])
def test_overlap_with_anything_active_is_refused(status):
    """V12 at submission: of two Submitted entries one would only become Failed later."""
    other = entry(50, spec(runs=(1,), to=1), status)
    rule, message = refusal(Spec(spec(runs=(2, 1), to=1)), other)
    assert rule == "V12"
    assert f"wait for {ulid(50)}, or cancel it" in message


def test_a_second_l0_job_of_a_tree_is_refused_while_one_waits():
    rule, message = refusal(Spec(spec((4, 3, 2, 1), to=9)), entry(50, spec((2, 1), to=10)))
    assert rule == "V9"
    assert str(ulid(50)) in message


def test_an_ended_compaction_conflicts_with_no_other():
    done = entry(50, spec(runs=(2, 1), to=1), S.COMPLETED)
    (planned,) = plan_submission(STATE, compactions(done), Spec(spec(runs=(2, 1), to=1)), lambda _: ulid(60))
    assert (planned.id, planned.status) == (ulid(60), S.SUBMITTED)


def test_the_entries_of_one_request_get_an_id_each():
    planned = plan_submission(STATE, compactions(), Full(), lambda index: ulid(60 + index))
    assert [each.id.ms for each in planned] == [60, 61]
    assert [each.spec.segment for each in planned] == [b"", b"log"]
