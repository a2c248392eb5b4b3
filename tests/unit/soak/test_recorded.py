"""A history that a soak recorded, with kills, take-overs and broken connections: clean, until it is changed."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.soak.checker.verdict import check_history, check_partition
from tests.soak.checker.views import Tenures
from tests.soak.history.journal import partition_of
from tests.soak.history.operation import FINAL, Operation
from tests.unit.soak.histories import kinds

RECORDED = Path(__file__).with_name("recorded")
OPERATIONS = [
    Operation(*json.loads(line))
    for line in gzip.decompress((RECORDED / "history.ops.jsonl.gz").read_bytes()).splitlines()
]
TENURES = Tenures.of(OPERATIONS)
Change = Callable[[random.Random], tuple[list[Operation], set[str]] | None]
"""Returns a changed history and what is found in it; ``None`` if the draw has nothing to change."""


def exchanged(old: Operation, new: Operation) -> list[Operation]:
    return [new if each is old else each for each in OPERATIONS]


def of(function: str, *, kind: str, session: str | None = None) -> list[Operation]:
    return [
        each
        for each in OPERATIONS
        if each.function == function
        and each.outcome == "ok"
        and each.key.startswith(kind)
        and (session is None or each.session == session)
    ]


def appender(key: str, element: str) -> Operation:
    appends = (each for each in OPERATIONS if each.function == "txn" and ["append", key, element] in (each.value or ()))
    return next(appends)


def lose_a_row(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    final = rng.choice([each for each in of("read", kind="once", session=FINAL) if each.value is not None])
    return exchanged(final, replace(final, value=None)), {"not linearizable"}


def resurrect_an_old_value(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    final = rng.choice([each for each in of("read", kind="register", session=FINAL) if each.value is not None])
    writes = [each for each in of("write", kind="register") if each.key == final.key]
    newest = next((each for each in writes if each.value == final.value), None)
    older = [each for each in writes if newest is not None and each.end < newest.start]
    if not older:
        return None
    return exchanged(final, replace(final, value=rng.choice(older).value)), {"not linearizable"}


def swap_two_reads(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    reads = [each for each in of("read", kind="register") if each.interface == "http" and not TENURES.is_stale(each)]
    first, second = rng.sample(reads, 2)
    same = [each for each in reads if each.key == first.key and each.value != first.value and each.start > first.end]
    if not same or first.value is None:
        return None
    second = rng.choice(same)
    writes = {each.value: each for each in of("write", kind="register") if each.key == first.key}
    if second.value not in writes or writes[second.value].start < first.end:
        return None
    changed = [replace(first, value=second.value) if each is first else each for each in OPERATIONS]
    changed = [replace(second, value=first.value) if each is second else each for each in changed]
    return changed, {"not linearizable"}


def reject_what_was_read(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    finals = [step for each in of("txn", kind="list", session=FINAL) for step in each.value if step[2]]
    _, key, elements = rng.choice(finals)
    element = rng.choice(elements)
    writer = appender(key, element)
    return exchanged(writer, replace(writer, outcome="fail")), {"G1a: aborted read"}


def lose_an_append(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    final = rng.choice([each for each in of("txn", kind="list", session=FINAL) if any(step[2] for step in each.value)])
    steps = [list(step) for step in final.value]
    step = rng.choice([step for step in steps if step[2]])
    writer = appender(step[1], step[2][-1])
    if writer.outcome != "ok":
        return None
    step[2] = step[2][:-1]
    return exchanged(final, replace(final, value=steps)), {"lost write"}


def tear_a_scan(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    scan = rng.choice([each for each in of("scan", kind="group") if each.value])
    others = [
        each for each in of("batch", kind="group") if each.key == scan.key and each.value not in scan.value.values()
    ]
    if not others:
        return None
    member = rng.choice(sorted(scan.value))
    torn = replace(scan, value={**scan.value, member: rng.choice(others).value})
    return exchanged(scan, torn), {"torn state"}


def count_one_twice(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    addition = rng.choice(of("add", kind="counter"))
    same = [each for each in of("add", kind="counter") if each.key == addition.key and each is not addition]
    if not same:
        return None
    return exchanged(addition, replace(addition, value=rng.choice(same).value)), {"lost update"}


def let_a_reader_go_back(rng: random.Random) -> tuple[list[Operation], set[str]] | None:
    reads = [each for each in of("read", kind="register") if each.interface == "reader" and each.value is not None]
    read = rng.choice(reads)
    before = [
        each
        for each in reads
        if (each.session, each.served_by, each.key) == (read.session, read.served_by, read.key)
        and each.end < read.start
    ]
    writes = {each.value: each for each in of("write", kind="register") if each.key == read.key}
    newest = max((writes[each.value] for each in before if each.value in writes), key=lambda w: w.start, default=None)
    older = [write for write in writes.values() if newest is not None and write.end < newest.start]
    if not older:
        return None
    return exchanged(read, replace(read, value=rng.choice(older).value)), {"session went back"}


CHANGES: list[Change] = [
    lose_a_row,
    resurrect_an_old_value,
    swap_two_reads,
    reject_what_was_read,
    lose_an_append,
    tear_a_scan,
    count_one_twice,
    let_a_reader_go_back,
]


def found_in(operations: list[Operation], names: set[str]) -> set[str]:
    """Judge the partitions of these names."""
    parts: dict[str, list[Operation]] = {name: [] for name in names}
    for operation in sorted(operations, key=lambda each: each.start):
        if (name := partition_of(operation)) in parts:
            parts[name].append(operation)
    return {kind for name, part in parts.items() for kind in kinds(check_partition(name, part, TENURES))}


def unpacked(folder: Path) -> Path:
    for file in RECORDED.glob("*.gz"):
        with gzip.open(file) as packed, (folder / file.stem).open("wb") as out:
            shutil.copyfileobj(packed, out)
    return folder / "consumer.feed.jsonl"


def test_the_history_is_clean(tmp_path: Path) -> None:
    feed = unpacked(tmp_path)
    said: list[str] = []
    findings = check_history(tmp_path, tmp_path / "parts", feed=feed, say=said.append)
    assert (kinds(findings), findings.undecided) == (set(), [])
    assert len(TENURES.replaced_at) > 1, "no writer was replaced"
    assert {each.outcome for each in OPERATIONS} == {"ok", "fail", "unknown"}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@settings(max_examples=examples(4))
@given(seed=st.integers(0, 2**32))
def test_every_change_is_found(change: Change, seed: int) -> None:
    rng = random.Random(seed)
    drawn = next((done for _ in range(200) if (done := change(rng)) is not None), None)
    assert drawn is not None, "the history has nothing to change"
    operations, expected = drawn
    changed = {
        partition_of(new) for old, new in zip(OPERATIONS, operations, strict=True) if astuple(old) != astuple(new)
    }
    assert found_in(operations, changed) & expected


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda rows: rows[1:], "missing in the feed"),
        (lambda rows: [*rows, rows[0]], "feed out of order"),
        (lambda rows: [*rows[:5], rows[4], *rows[5:]], "duplicate in the feed"),
    ],
)
def test_a_changed_feed_is_found(
    tmp_path: Path, change: Callable[[list[list[object]]], list[list[object]]], kind: str
) -> None:
    feed = unpacked(tmp_path)
    rows = [row for line in feed.read_text().splitlines() for row in json.loads(line)["rows"]]
    first = next(number for number, row in enumerate(rows) if str(row[1]).startswith("once"))
    feed.write_text(json.dumps({"rows": change(rows[first:])}) + "\n")
    said: list[str] = []
    findings = check_history(tmp_path, tmp_path / "parts", feed=feed, say=said.append)
    assert kind in kinds(findings)
