"""Boundaries of the forms of a request, and the sources that it resolves to."""

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
    segments_of,
)
from shale.errors import InvalidCompaction, InvalidRequestError
from shale.types import RunId, Ulid
from tests.unit.compactor.values import S, compactions, drain, entry, manifest, spec, tree, ulid

STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)), new=tree((20,)))
L0_1 = str(ulid(1))


def merge_of(sources: object, **fields: object) -> object:
    return {"Spec": {"sources": sources, **fields}}


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        pytest.param({"Full": {}}, Full(), id="full, a table"),
        pytest.param({"FullSegment": {"segment": ""}}, FullSegment(b""), id="empty text"),
        pytest.param({"FullSegment": {"segment": "ü"}}, FullSegment(b"\xc3\xbc"), id="text is UTF-8"),
        pytest.param({"FullSegment": {"segment": [0, 255, 7.0]}}, FullSegment(b"\x00\xff\x07"), id="bytes"),
        pytest.param(merge_of([{"SortedRun": 0}], destination=0), Spec(spec(runs=(0,), to=0)), id="run 0"),
        pytest.param(
            merge_of([{"SortedRun": 5.0}], destination=2**32 - 1),
            Spec(spec(runs=(5,), to=2**32 - 1)),
            id="a number without fraction, the highest id",
        ),
        pytest.param(
            merge_of([{"SortedRun": 2}, {"SstView": L0_1}, {"SortedRun": 5}], destination=None, segment="log"),
            Sources(l0_view_ids=(ulid(1),), sorted_runs=(RunId(2), RunId(5)), segment=b"log"),
            id="no destination; each kind keeps its order",
        ),
        pytest.param(merge_of(()), Sources(), id="no sources, which V1 refuses"),
        pytest.param(
            {"Spec": {"DrainSegment": {"sources": [{"SortedRun": 6}, {"Sst": L0_1}]}}},
            Spec(drain(b"", (1,), (6,))),
            id="a drain without segment, which V2 refuses",
        ),
        pytest.param(
            {"Spec": {"Tiered": {"sources": [{"SortedRun": 6}], "segment": [1]}}},
            Sources(sorted_runs=(RunId(6),), segment=b"\x01"),
            id="Tiered without destination",
        ),
    ],
)
def test_forms_that_are_read(value, request_):
    assert parse_request(value) == request_


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "request: write"),
        (["Full"], "request: write"),
        ([{"Full": None}], "request: write"),
        ({"Full": 1}, "'Full' is none of"),
        ({"Full": []}, "'Full' is none of"),
        ({"FullSegment": None}, "FullSegment: a table with segment$"),
        ({"FullSegment": {"segment": [-1]}}, r"FullSegment\.segment: a list of numbers"),
        ({"FullSegment": {"segment": [True]}}, r"FullSegment\.segment: a list of numbers"),
        ({"FullSegment": {"segment": [1.5]}}, r"FullSegment\.segment: a list of numbers"),
        ({"FullSegment": {"segment": ["a"]}}, r"FullSegment\.segment: a list of numbers"),
        ({"FullSegment": {"segment": 7}}, r"FullSegment\.segment: a list of numbers"),
        ({"FullSegment": {"segment": None}}, r"FullSegment\.segment: a list of numbers"),
        ({"Spec": []}, "Spec: a table with Tiered, DrainSegment, "),
        ({"Spec": {"runs": []}}, r"Spec\.runs: no such field"),
        ({"Spec": {"Tiered": []}}, r"Spec\.Tiered: a table with segment, sources, destination$"),
        ({"Spec": {"Tiered": {"runs": []}}}, r"Spec\.Tiered\.runs: no such field"),
        ({"Spec": {"Tiered": {"sources": [], "destination": "1"}}}, r"Spec\.Tiered\.destination: '1'"),
        ({"Spec": {"Tiered": {"sources": [], "segment": 1}}}, r"Spec\.Tiered\.segment:"),
        ({"Spec": {"DrainSegment": []}}, r"Spec\.DrainSegment: a table with segment, sources$"),
        ({"Spec": {"DrainSegment": {"destination": 1}}}, r"Spec\.DrainSegment\.destination: no such field"),
        ({"Spec": {"DrainSegment": {"segment": []}}}, r"Spec\.DrainSegment\.sources: a list"),
        ({"Spec": {"DrainSegment": {"sources": [], "segment": 1}}}, r"Spec\.DrainSegment\.segment:"),
        ({"Spec": {"DrainSegment": {}, "segment": []}}, "nothing beside it"),
        ({"Spec": {"DrainSegment": {}, "Tiered": {}}}, "nothing beside it"),
        (merge_of(b"SR1"), r"Spec\.sources: a list"),
        (merge_of({"SortedRun": 1}), r"Spec\.sources: a list"),
        (merge_of(["SR1"]), r"Spec\.sources\[0\]: \{"),
        (merge_of([{}]), r"Spec\.sources\[0\]: \{"),
        (merge_of([{"SortedRun": 1, "SstView": L0_1}]), r"Spec\.sources\[0\]: \{"),
        (merge_of([{"SortedRun": 1}, {"SortedRun": -1}]), r"Spec\.sources\[1\]: -1 is not the id"),
        (merge_of([{"SortedRun": 1.5}]), r"1\.5 is not the id"),
        (merge_of([{"SortedRun": "1"}]), r"'1' is not the id"),
        (merge_of([{"SstView": 7}]), r"Spec\.sources\[0\]: 7 is not a ULID"),
        (merge_of([], destination=2**32), r"Spec\.destination: 4294967296 is not the id"),
        (merge_of([], destination=False), r"Spec\.destination: False is not the id"),
    ],
)
def test_forms_that_are_refused(value, message):
    with pytest.raises(InvalidRequestError, match=message):
        parse_request(value)


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        pytest.param(Sources(l0_view_ids=(ulid(1),)), {"segment": [], "sources": [{"SstView": L0_1}]}, id="open"),
        pytest.param(
            Sources(sorted_runs=(RunId(3),), destination=RunId(0), segment=b"a"),
            {"segment": [97], "sources": [{"SortedRun": 3}], "destination": 0},
            id="destination 0",
        ),
    ],
)
def test_the_json_of_sources(request_, fields):
    assert request_json(request_) == {"Spec": fields}


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("SR0", ((), (0,))),
        ("SR4294967295", ((), (2**32 - 1,))),
        ("SR" + "0" * 19 + "5", ((), (5,))),
        (f" {L0_1.lower()} ,sr3,{ulid(2)},7", ((ulid(1), ulid(2)), (3, 7))),
    ],
)
def test_sources_in_text(text, sources):
    assert parse_sources(text) == sources


@pytest.mark.parametrize("name", ["SR4294967296", "0" * 20 + "5", "SRSR1", "SR٣", "²", "1.0", "", "+1", L0_1[:-1]])
def test_names_that_are_no_sources(name):
    with pytest.raises(InvalidRequestError, match="is neither a run such as SR3 nor the ULID of an L0") as error:
        parse_sources(f"SR1,{name}")
    assert repr(name) in str(error.value)


def test_a_request_for_one_tree_without_runs_names_the_tree():
    for segment, named in ((b"", "the root tree"), (b"new", "segment 6e6577")):
        state = manifest(tree((2, 1)), new=tree((2, 1)))
        with pytest.raises(InvalidCompaction, match=f"{named} has no sorted runs; its 2 L0s") as error:
            resolve(FullSegment(segment), state, compactions())
        assert error.value.rule == "V1"


def test_segments_in_messages():
    assert segments_of(STATE) == "there are 6c6f67, 6e6577 (in hex)"
    assert segments_of(manifest()) == "the database has no segments"


@pytest.mark.parametrize(
    ("sources", "resolved"),
    [
        pytest.param(Sources(l0_view_ids=(ulid(1), ulid(3), ulid(2))), spec((3, 2, 1), to=9), id="L0s as in the tree"),
        pytest.param(
            Sources(
                l0_view_ids=(ulid(9), ulid(1), ulid(4), ulid(8), ulid(1)), sorted_runs=(RunId(2), RunId(3), RunId(2))
            ),
            spec((4, 1, 9, 8), (3, 2), to=2),
            id="missing ones last, duplicates once",
        ),
        pytest.param(
            Sources(sorted_runs=(RunId(6), RunId(8)), destination=RunId(0), segment=b"log"),
            spec(runs=(8, 6), to=0, segment=b"log"),
            id="the given destination, although it is 0",
        ),
        pytest.param(
            Sources(l0_view_ids=(ulid(1),), segment=b"x"),
            spec((1,), to=9, segment=b"x"),
            id="no such segment: V3 later",
        ),
    ],
)
def test_sources_are_ordered_and_get_a_destination(sources, resolved):
    assert resolve(sources, STATE, compactions()) == (resolved,)


def test_a_derived_destination_avoids_those_of_active_compactions():
    others = compactions(entry(50, spec((14, 13), to=11, segment=b"log"), S.RUNNING))
    assert resolve(Sources(l0_view_ids=(ulid(1),)), STATE, others) == (spec((1,), to=12),)
    assert resolve(Spec(spec((1,), to=11)), STATE, others) == (spec((1,), to=11),)


def test_every_source_of_a_request_is_an_id():
    with pytest.raises(InvalidRequestError, match="l0_view_ids: 7 is no Ulid"):
        Sources(l0_view_ids=(Ulid(8), 7))
