"""Properties of all policies: valid proposals, termination, and few sorted sources.

Source: docs/reference/protocol.md 6.7.
"""

import contextlib
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.policies.tree_plan import TreePlan, propose
from shale.compaction.specs import L0Source, SortedRunSource, order_of
from shale.errors import InvalidCompaction
from shale.types import Compactions, Manifest, RunId, Segment, TieredSpec, Tree
from tests.examples import examples
from tests.unit.compaction.harness import Database, leveled_policies, manifests, policies, time_window_policies

SEEDS = st.integers(0, 2**32)


def requested(database: Database, rng: random.Random) -> None:
    """Return up to three valid merges that an administrator requests, of any window of any tree."""
    for prefix, tree in database.manifest.trees():
        order = order_of(prefix, tree)
        if not order:
            continue
        start = rng.randrange(len(order))
        chosen = order[start : start + rng.randint(1, 4)]
        runs = tuple(source.run_id for source in chosen if isinstance(source, SortedRunSource))
        spec = TieredSpec(
            segment=prefix,
            l0_view_ids=tuple(source.view_id for source in chosen if isinstance(source, L0Source)),
            sorted_runs=runs,
            destination=min(runs, default=RunId(database.next_run + rng.randint(0, 3))),
        )
        with contextlib.suppress(InvalidCompaction):
            database.try_accept(spec)


@settings(max_examples=examples(50), deadline=None)
@given(policies(), manifests(), SEEDS)
def test_every_proposal_is_allowed_beside_everything_active(policy, manifest, seed):
    database, rng = Database(policy, manifest), random.Random(seed)
    if rng.random() < 0.7:
        requested(database, rng)
    database.submit(capacity=100)


@settings(max_examples=examples(30), deadline=None)
@given(policies(), manifests(), SEEDS)
def test_a_finite_load_ends(policy, manifest, seed):
    """Each round starts jobs up to the capacity and finishes one: 150 rounds suffice for a hundred sources.

    A policy that rests has left no tree with as many L0s as start a merge.
    """
    database, rng = Database(policy, manifest), random.Random(seed)
    capacity = rng.randint(1, 4)
    for _ in range(150):
        database.submit(capacity)
        if not database.active:
            assert all(len(tree.l0) < policy.min_compaction_sources for _, tree in database.manifest.trees())
            return
        database.finish(rng.choice(database.active), kept=rng.choice((0.0, 0.5, 1.0)))
    pytest.fail(f"still at work: {list(policy.plan(database.manifest, database.compactions))}")


@dataclass
class Load:
    """Measures of a database: the maximum number of runs, and the bytes that it ever held."""

    most_runs: int = 0
    total_bytes: int = 0


def under_load(policy: CompactionScheduler, rng: random.Random) -> Load:
    """Add L0s while jobs run; like the writer, stop at eight L0s."""
    database, load = Database(policy, Manifest()), Load()
    capacity, finishes = rng.choice((1, 1, 3)), rng.choice((0.3, 0.6, 1.0))
    for _ in range(200):
        database.now_s += rng.choice((1, 20))
        if len(database.manifest.tree.l0) < 8:
            size = rng.choice((90, 100, 100, 400))
            database.flush(size)
            load.total_bytes += size
        database.submit(capacity)
        if database.active and rng.random() < finishes:
            database.finish(rng.choice(database.active), kept=rng.choice((0.0, 0.3, 1.0, 1.0, 1.0)))
        load.most_runs = max(load.most_runs, database.run_count)
    return load


@settings(max_examples=examples(20), deadline=None)
@given(leveled_policies(), SEEDS)
def test_leveled_keeps_about_one_run_per_level(policy, seed):
    load = under_load(policy, random.Random(seed))
    assert load.most_runs <= policy.level_of(load.total_bytes) + policy.max_extra_runs


@settings(max_examples=examples(20), deadline=None)
@given(time_window_policies(), SEEDS)
def test_time_window_keeps_about_one_run_per_window(policy, seed):
    """Separate windows, runs of the newest window, a backlog that delays L0s, an archive of growing runs."""
    load = under_load(policy, random.Random(seed))
    archive = math.log(load.total_bytes, policy.include_size_threshold)
    assert load.most_runs <= policy.max_windows + 2 * policy.max_compaction_sources + archive


def test_proposals_are_made_as_they_are_asked_for():
    """With thousands of segments, no proposal beyond the capacity is computed."""
    asked: list[bytes] = []

    def pick(tree: TreePlan, fresh: RunId) -> TieredSpec:
        asked.append(tree.segment)
        return TieredSpec(segment=tree.segment, sorted_runs=(RunId(0),), destination=fresh)

    segments = tuple(Segment(prefix=b"%03d" % number, tree=Tree()) for number in range(500))
    assert next(propose(Manifest(segments=segments), Compactions(), pick)).destination == 0
    assert asked == [b""]
