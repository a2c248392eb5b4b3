"""Which faults a seed draws, and which ends of daemons they explain."""

import json
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.soak.__main__ import parse
from tests.soak.judge.exits import unexplained
from tests.soak.judge.logs import complaints
from tests.soak.judge.memory import MemorySamples, resident_bytes
from tests.soak.plan.faults import DAEMONS, KINDS, Fault, clock_skew_s, draw_faults, possible_kinds
from tests.soak.proxy.rules import Rules
from tests.soak.run.events import Events
from tests.soak.run.injector import other_side
from tests.soak.stack.leftovers import Leftovers
from tests.soak.stack.processes import CURRENT, Command, Exit, Supervisor

EVERYTHING = {"namespaces", "tmpfs", "wheel", "previous"}


def test_a_seed_draws_the_same_faults_and_another_one_draws_others() -> None:
    kinds = possible_kinds(None, EVERYTHING)
    first, again, other = (draw_faults(seed, 600, kinds, pause_s=(3, 9)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_every_kind_comes_before_the_end_and_overlaps_no_fault_of_its_kind() -> None:
    faults = draw_faults(7, 900, possible_kinds(None, EVERYTHING), pause_s=(3, 9))
    assert {fault.kind for fault in faults} == set(KINDS)
    assert all(fault.at_s + fault.duration_s <= 900 * 0.9 + 1 for fault in faults)
    for kind in KINDS:
        same = [fault for fault in faults if fault.kind == kind]
        assert all(a.at_s + a.duration_s <= b.at_s for a, b in pairwise(same)), kind


def test_what_a_machine_does_not_allow_is_left_out() -> None:
    assert {kind.name for kind in possible_kinds(None, set())} == {
        each.name for each in KINDS.values() if not each.needs
    }
    assert [kind.name for kind in possible_kinds(["kill", "partition"], set())] == ["kill"]
    assert "reader-b" not in possible_kinds(["kill"], set(), absent={"reader-b"})[0].targets
    with pytest.raises(ValueError, match="there is no kil; the kinds are kill"):
        possible_kinds(["kil"], EVERYTHING)


def test_how_far_clocks_are_set() -> None:
    steps = [Fault(number, "clock-step", "gc", 1.0, 1.0, amount) for number, amount in enumerate((3.0, -7.5, 2.0))]
    assert clock_skew_s([*steps, Fault(9, "store-errors", "store", 1.0, 1.0, 40.0)]) == 7.5
    assert clock_skew_s([]) == 0


@pytest.mark.parametrize(
    ("kind", "target", "other"),
    [
        ("partition-from-store", "gc", "store"),
        ("partition-from-clients", "reader-a", "clients"),
        ("partition-from-standby", "writer-a", "writer-b"),
        ("partition-from-standby", "writer-b", "writer-a"),
    ],
)
def test_from_which_node_a_partition_cuts(kind: str, target: str, other: str) -> None:
    assert other_side(Fault(0, kind, target, 1.0, 1.0, 0.0)) == other


def test_the_command_that_repeats_a_run() -> None:
    options, _ = parse(["--hours", "0.5", "--seed", "9", "--faults", "kill,freeze", "--small"])
    assert options.command(9) == "python -m tests.soak --minutes 30 --seed 9 --faults kill,freeze --small"
    options, _ = parse(["--minutes", "1", "--seed", "9", "--memory-limit", "300", "--memory-groups"])
    assert options.memory_limit_bytes == 300 << 20
    assert options.command(9) == "python -m tests.soak --minutes 1 --seed 9 --memory-limit 300 --memory-groups"
    options, _ = parse(["--minutes", "2", "--faults", "none"])
    assert options.faults == ()


def end(node: str, code: int, injected: str = "", at: float = 100.0, version: str = CURRENT) -> Exit:
    return Exit(node, f"{node}.0", version, code, at, injected, Path("log"))


def test_exit_codes_that_faults_explain(tmp_path: Path) -> None:
    events = Events(tmp_path / "events")
    right = [end("gc", -9, "kill"), end("gc", 0, "stop"), end("writer-a", 80), end("compactor", 80)]
    assert unexplained(right, events, DAEMONS) == []
    wrong = [end("gc", -9), end("gc", 0), end("reader-a", 80), end("gc", 1, "stop"), end("worker", 69)]
    assert len(unexplained(wrong, events, DAEMONS)) == len(wrong)
    outage = events.add("store-errors", "store", fault=1)
    outage.at, outage.until = 90, 99
    assert unexplained([end("worker", 69), end("worker", 75)], events, DAEMONS) == []
    assert unexplained([end("worker", 69, at=300)], events, DAEMONS) == ["worker.0 ended with 69: no fault was active"]


@pytest.mark.parametrize("node", DAEMONS)
def test_only_the_previous_version_may_take_an_old_list_for_damage(tmp_path: Path, node: str) -> None:
    events = Events(tmp_path / "events")
    previous = end(node, 65, version="previous")
    damage = [f"{node}.0 ended with 65: nothing damages the database"]
    assert unexplained([previous], events, DAEMONS) == damage
    old = events.add("store-old-lists", "store", fault=1)
    old.at, old.until = 90, 99
    assert unexplained([previous], events, DAEMONS) == []
    assert unexplained([end(node, 65, at=300, version="previous")], events, DAEMONS) == damage
    assert unexplained([end(node, 65)], events, DAEMONS) == damage


def test_the_supervisor_notes_the_version_of_what_ended(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, Leftovers(tmp_path / "state"))
    for name, words in (("gc", {}), ("worker", {"version": "previous"})):
        command = Command(f"{name}.0", ["true"], {}, **words)
        supervisor.add(name, lambda _number, command=command: command, is_restarted=False)
    supervisor.stop(["gc", "worker"])
    assert {each.node: each.version for each in supervisor.exits} == {"gc": CURRENT, "worker": "previous"}


def test_tracebacks_and_damage_in_logs(tmp_path: Path) -> None:
    clean, broken, damaged = (tmp_path / name for name in ("clean.log", "broken.log", "damaged.log"))
    clean.write_text('{"event":"daemon.started"}\n')
    broken.write_text('{"event":"daemon.started"}\nTraceback (most recent call last):\n  File "x"\nKeyError\n')
    damaged.write_text(json.dumps({"event": "store.corruption", "path": "wal/1"}) + "\n")
    found = complaints([clean, broken, damaged])
    assert [line.split(":")[0] for line in found] == ["broken.log", "damaged.log"]
    assert "KeyError" in found[0]


def test_memory_above_the_limit() -> None:
    samples = MemorySamples(limit_bytes=1 << 20)
    samples.sample({"gc": ("gc.0", os.getpid()), "client-http": ("client-http.0", os.getpid())})
    assert resident_bytes(os.getpid()) > 1 << 20
    assert [line.split(":")[0] for line in samples.above_limit(("gc",))] == ["gc.0"]


@pytest.mark.parametrize(
    ("kind", "method", "target", "actions"),
    [
        ("store-errors", "GET", "/b/k", {"error"}),
        ("store-slow-down", "PUT", "/b/k", {"slow-down"}),
        ("store-reset-after", "PUT", "/b/k", {"reset-after", "reset-before"}),
        ("store-truncated", "GET", "/b/k", {"truncated"}),
        ("store-truncated", "PUT", "/b/k", {"pass"}),
        ("store-stalls", "GET", "/b/k", {"stall"}),
        ("store-duplicates", "PUT", "/b/k", {"duplicate"}),
        ("store-duplicates", "GET", "/b/k", {"pass"}),
        ("store-old-lists", "GET", "/b?list-type=2", {"old-list"}),
        ("store-old-lists", "GET", "/b/k", {"pass"}),
    ],
)
def test_what_the_proxy_does_to_requests(kind: str, method: str, target: str, actions: set[str]) -> None:
    rules = Rules(random.Random(1), {kind: 1.0})
    assert {rules.choose(method, target) for _ in range(50)} == actions
    assert Rules(random.Random(1)).choose(method, target) == "pass"
