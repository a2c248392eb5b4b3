"""Each anomaly of Adya, by hand; and histories without any."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.checker.lists import check_lists
from tests.soak.checker.views import Tenures
from tests.soak.history.operation import FINAL, Operation
from tests.unit.soak.histories import ALONE, Recorder, kinds


def r(key: str, *elements: str) -> list[object]:
    return ["r", key, list(elements)]


def append(key: str, element: str) -> list[object]:
    return ["append", key, element]


def check(recorder: Recorder, tenures: Tenures = ALONE) -> set[str]:
    return kinds(check_lists("list/g", recorder.operations, tenures))


def test_a_serial_history_is_clean() -> None:
    history = Recorder()
    history.add("a", "txn", [r("x"), append("x", "1"), append("y", "1")], 0, 1)
    history.add("b", "txn", [r("x", "1"), append("x", "2")], 2, 3)
    history.add("a", "txn", [r("x", "1", "2"), r("y", "1")], 4, 5)
    assert check(history) == set()


def test_g0_a_cycle_of_writes() -> None:
    history = Recorder()
    history.transactions([append("x", "1"), append("y", "1")], [append("x", "2"), append("y", "2")])
    history.transactions([r("x", "1", "2"), r("y", "2", "1")])
    assert check(history) == {"G0: write cycle"}


def test_g1a_an_aborted_read() -> None:
    history = Recorder()
    history.transactions([append("x", "1")], outcome="fail")
    history.transactions([r("x", "1")])
    assert check(history) == {"G1a: aborted read"}


def test_g1b_an_intermediate_read() -> None:
    history = Recorder()
    history.transactions([append("x", "1"), append("x", "2")], [r("x", "1")], [r("x", "1", "2")])
    assert check(history) == {"G1b: intermediate read"}


def test_g1c_a_circle_of_information() -> None:
    history = Recorder()
    history.transactions([append("x", "1"), r("y", "1")], [append("y", "1"), r("x", "1")])
    assert check(history) == {"G1c: circular information flow"}


def test_g_single_read_skew() -> None:
    history = Recorder()
    history.transactions([append("x", "1"), append("y", "1")], [r("x", "1"), r("y")], [r("x", "1"), r("y", "1")])
    assert check(history) == {"G-single: read skew"}


def test_g2_write_skew() -> None:
    history = Recorder()
    history.transactions([r("x"), append("y", "1")], [r("y"), append("x", "1")], [r("x", "1"), r("y", "1")])
    assert check(history) == {"G2: anti-dependency cycle"}


def test_lost_update() -> None:
    history = Recorder()
    history.transactions([r("x"), append("x", "1")], [r("x"), append("x", "2")])
    assert check(history) == {"lost update"}


def test_incompatible_order() -> None:
    history = Recorder()
    history.transactions([append("x", "1")], [append("x", "2")], [r("x", "1", "2")], [r("x", "2")])
    assert check(history) == {"incompatible order"}


@pytest.mark.parametrize(("step", "kind"), [(r("x", "1", "1"), "duplicate elements"), (r("x", "9"), "unwritten value")])
def test_impossible_lists(step: list[object], kind: str) -> None:
    history = Recorder()
    history.transactions([append("x", "1")], [step])
    assert check(history) == {kind}


def test_a_read_that_misses_what_was_acknowledged_before_is_a_cycle_of_time() -> None:
    history = Recorder()
    history.add("a", "txn", [append("x", "1")], 0, 1)
    history.add("b", "txn", [r("x")], 2, 3)
    history.add("c", "txn", [r("x", "1")], 4, 5)
    assert check(history) == {"G-single-realtime"}
    assert check(history, Tenures({"writer-1": 2.5})) == set(), "that writer had been replaced"


def test_readers_may_be_old_but_one_session_does_not_go_back() -> None:
    history = Recorder()
    history.add("a", "txn", [append("x", "1")], 0, 1)
    history.add("r", "txn", [r("x")], 2, 3, interface="reader", served_by="reader-1")
    history.add("r", "txn", [r("x", "1")], 4, 5, interface="reader", served_by="reader-1")
    assert check(history) == set()
    history.add("r", "txn", [r("x")], 6, 7, interface="reader", served_by="reader-1")
    assert check(history) == {"G-single-realtime"}


def test_an_acknowledged_append_that_is_gone_at_the_end_is_lost() -> None:
    history = Recorder()
    history.add("a", "txn", [append("x", "1")], 0, 1)
    history.add(FINAL, "txn", [r("x")], 8, 9)
    assert check(history) == {"lost write"}


def test_an_unknown_append_may_be_there_or_not() -> None:
    for elements in ((), ("1",)):
        history = Recorder()
        history.add("a", "txn", [append("x", "1")], 0, 1, outcome="unknown")
        history.add(FINAL, "txn", [r("x", *elements)], 8, 9)
        assert check(history) == set()


def simulated(seed: int) -> list[Operation]:
    """Record transactions that take effect at one moment each."""
    rng = random.Random(seed)
    history = Recorder()
    lists: dict[str, list[str]] = {"x": [], "y": [], "z": []}
    time = 0.0
    for number in range(40):
        time += 1
        steps: list[list[object]] = []
        keys = rng.sample(sorted(lists), 2)
        steps += [r(key, *lists[key]) for key in keys]
        for key in keys[: rng.randrange(3)]:
            lists[key].append(str(number))
            steps.append(append(key, str(number)))
        history.add(f"s{rng.randrange(4)}", "txn", steps, time - rng.random(), time + rng.random() * 0.9)
    final = [r(key, *elements) for key, elements in lists.items()]
    history.add(FINAL, "txn", final, time + 5, time + 6)
    return history.operations


@given(st.integers(0, 2**32))
def test_every_serial_execution_is_clean(seed: int) -> None:
    assert kinds(check_lists("list/g", simulated(seed), ALONE)) == set()


@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_a_dropped_element_is_found(seed: int, rng: random.Random) -> None:
    """Remove an acknowledged append from the final state, as a lost WAL file would."""
    *operations, final = simulated(seed)
    filled = [step for step in final.value if step[2]]
    step = rng.choice(filled)
    gone = rng.choice(step[2])
    value = [
        ["r", key, [each for each in elements if (key, each) != (step[1], gone)]] for _, key, elements in final.value
    ]
    assert kinds(check_lists("list/g", [*operations, replace(final, value=value)], ALONE)) & {
        "lost write",
        "incompatible order",
    }


@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_two_swapped_reads_are_found(seed: int, rng: random.Random) -> None:
    """Exchange the lists that two transactions of different times read of one key."""
    operations = simulated(seed)
    readers = [
        (index, position)
        for index, each in enumerate(operations[:-1])
        for position, step in enumerate(each.value)
        if step[0] == "r" and step[1] == "x"
    ]
    if len(readers) < 2:
        return
    (first, at), (second, other_at) = readers[0], readers[-1]
    one, two = operations[first], operations[second]
    if one.value[at][2] == two.value[other_at][2]:
        return
    values = [list(one.value), list(two.value)]
    values[0][at], values[1][other_at] = two.value[other_at], one.value[at]
    operations[first], operations[second] = replace(one, value=values[0]), replace(two, value=values[1])
    assert kinds(check_lists("list/g", operations, ALONE))


@pytest.mark.parametrize(
    ("final", "found"),
    [
        (("1", "2", "3"), set()),
        (("1", "3", "2"), {"G0-realtime"}),
        (("1", "2", "3", "2"), {"duplicate elements"}),
        (("1", "3"), {"lost write"}),
        (("1", "2", "3", "4"), {"G1a: aborted read"}),
    ],
)
def test_merged_elements_count_once_and_in_order(final: tuple[str, ...], found: set[str]) -> None:
    history = Recorder()
    for number, outcome in enumerate(("ok", "ok", "ok", "fail"), 1):
        history.add("a", "txn", [append("x", str(number))], number, number + 0.5, outcome=outcome)
    history.add(FINAL, "txn", [r("x", *final)], 9, 10)
    assert check(history) == found
