"""The search finds every order that explains a register, and no order that does not."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.soak.checker.registers import check_register
from tests.soak.history.operation import Operation
from tests.unit.soak.histories import Recorder, kinds


def check(recorder: Recorder, **options: int) -> set[str]:
    return kinds(check_register("register/k", recorder.operations, **options))


def test_clean_histories() -> None:
    serial = Recorder()
    for time, (function, value) in enumerate([("write", "1"), ("read", "1"), ("write", "2"), ("read", "2")]):
        serial.add(function, function, value, time, time + 0.5)
    assert check(serial) == set()
    concurrent = Recorder()
    concurrent.add("a", "write", "1", 0, 10)
    concurrent.add("b", "write", "2", 0, 10)
    concurrent.add("c", "read", "2", 3, 4)
    concurrent.add("c", "read", "1", 5, 6)
    assert check(concurrent) == set(), "concurrent writes may take effect in any order"


def test_an_old_value_after_a_new_one_was_read_is_an_anomaly() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("a", "write", "2", 2, 10)
    history.add("b", "read", "2", 3, 4)
    history.add("c", "read", "1", 5, 6)
    assert check(history) == {"not linearizable"}


def test_a_lost_write_is_an_anomaly() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("a", "write", "2", 2, 3)
    history.add("final", "read", "1", 9, 9)
    findings = check_register("register/k", history.operations)
    assert kinds(findings) == {"not linearizable"}
    assert "a#1" in [operation.name for operation in findings.anomalies[0].operations]


def test_a_resurrected_value_is_an_anomaly() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("a", "write", None, 2, 3)
    history.add("b", "read", None, 4, 5)
    history.add("b", "read", "1", 6, 7)
    assert check(history) == {"not linearizable"}


def test_an_unknown_write_may_have_happened_or_not() -> None:
    for value in ("1", "2"):
        history = Recorder()
        history.add("a", "write", "1", 0, 1)
        history.add("a", "write", "2", 2, 3, outcome="unknown")
        history.add("b", "read", value, 4, 5)
        assert check(history) == set()


def test_an_unknown_write_may_happen_after_a_later_read_but_not_twice() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("b", "write", "2", 2, 3, outcome="unknown")
    history.add("c", "read", "1", 4, 5)
    history.add("c", "read", "2", 6, 7)
    assert check(history) == set()
    history.add("a", "write", "3", 8, 9)
    history.add("c", "read", "2", 10, 11)
    assert check(history) == {"not linearizable"}


def test_an_unknown_deletion_may_happen() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1)
    history.add("a", "write", None, 2, 3, outcome="unknown")
    history.add("b", "read", None, 4, 5)
    assert check(history) == set()


def test_a_value_of_a_rejected_write_is_an_anomaly() -> None:
    history = Recorder()
    history.add("a", "write", "1", 0, 1, outcome="fail")
    history.add("b", "read", "1", 2, 3)
    assert check(history) == {"failed write visible"}


def test_a_value_that_no_client_wrote_is_an_anomaly() -> None:
    history = Recorder()
    history.add("b", "read", "1", 2, 3)
    assert check(history) == {"unwritten value"}


def test_two_holders_of_one_lock_are_an_anomaly() -> None:
    history = Recorder()
    history.add("a", "cas", [None, "a1"], 0, 1)
    history.add("b", "cas", [None, "b1"], 2, 3)
    assert check(history) == {"not linearizable"}


def test_a_lock_changes_hands() -> None:
    history = Recorder()
    history.add("a", "cas", [None, "a1"], 0, 1)
    history.add("a", "cas", ["a1", None], 2, 3, outcome="unknown")
    history.add("b", "cas", [None, "b1"], 4, 5)
    assert check(history) == set()


def test_a_search_that_grows_too_large_is_undecided() -> None:
    history = Recorder()
    for number in range(12):
        history.add(f"w{number}", "write", str(number), 0, 100)
    history.add("r", "read", "11", 101, 102)
    findings = check_register("register/k", history.operations, limit=50)
    assert (kinds(findings), findings.undecided) == (set(), ["register/k"])


def simulated(seed: int) -> list[Operation]:
    """Record clients of a register that takes effect at one moment of each operation."""
    rng = random.Random(seed)
    history = Recorder()
    effects: list[tuple[float, str, str, float, float]] = []
    for client in range(3):
        time = 0.0
        for number in range(12):
            start = time + rng.random()
            end = start + rng.random() * 2
            function = rng.choice(["read", "write"])
            effects.append((rng.uniform(start, end), function, f"{client}/{number}", start, end))
            time = end
    value = None
    for _, function, name, start, end in sorted(effects):
        if function == "write":
            value = name
        history.add(name[0], "write" if function == "write" else "read", value, start, end)
    return history.operations


@given(st.integers(0, 2**32))
def test_every_real_history_is_linearizable(seed: int) -> None:
    assert kinds(check_register("register/k", simulated(seed))) == set()


@given(st.integers(0, 2**32))
def test_a_real_history_without_a_write_that_was_read_last_is_not(seed: int) -> None:
    """Drop an acknowledged write: the final read of its predecessor contradicts it."""
    operations = simulated(seed)
    writes = [each for each in operations if each.function == "write"]
    if len(writes) < 2:
        return
    end = max(each.end for each in operations) + 1
    last = max(writes, key=lambda each: each.end)
    before = [each for each in writes if each.end < last.start]
    if not before:
        return
    final = Recorder().add("final", "read", before[0].value, end, end + 1)
    assert kinds(check_register("register/k", [*operations, final])) == {"not linearizable"}
