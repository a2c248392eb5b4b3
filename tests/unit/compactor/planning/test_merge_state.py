"""The changes that a coordinator adopts from the stored compactions (docs/reference/protocol.md 6.6)."""

import itertools
from dataclasses import replace

import pytest

from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction
from shale_compactor.planning.merge_state import merge_remote
from tests.unit.compactor.values import S, compactions, entry, spec, statuses

WHAT = spec(runs=(1,), to=1)
ADOPTED = {
    (S.SUBMITTED, S.COMPACTED),
    (S.SCHEDULED, S.SCHEDULED),
    (S.SCHEDULED, S.RUNNING),
    (S.SCHEDULED, S.COMPACTED),
    (S.RUNNING, S.SCHEDULED),
    (S.RUNNING, S.RUNNING),
    (S.RUNNING, S.COMPACTED),
    (S.COMPACTED, S.COMPACTED),
    (S.SUBMITTED, S.FAILED),
    (S.SCHEDULED, S.FAILED),
    (S.RUNNING, S.FAILED),
    (S.COMPACTED, S.FAILED),
}


@pytest.mark.fault("F4.28")
@pytest.mark.parametrize(("local", "remote"), list(itertools.product(S, S)))
def test_known_entries(local, remote):
    """T6.e, T6.k: changes of workers are adopted, decisions of the coordinator stay."""
    mine, theirs = entry(1, WHAT, local), entry(1, WHAT, remote)
    merged = merge_remote(compactions(mine), compactions(theirs))
    adopted = (local, remote) in ADOPTED
    assert merged.compactions.entries == ((theirs,) if adopted else (mine,))
    assert merged.cancelled == ((theirs,) if adopted and remote is S.FAILED else ())


@pytest.mark.parametrize("status", list(S))
def test_unknown_entries(status):
    result = merge_remote(compactions(), compactions(entry(1, WHAT, status)))
    welcome = status not in (S.SCHEDULED, S.RUNNING)
    assert len(result.compactions.entries) == welcome
    assert len(result.ignored) == (not welcome)


def test_entries_known_only_locally_stay():
    local, remote = compactions(entry(2, WHAT)), compactions(entry(1, WHAT), entry(3, WHAT, S.FAILED))
    assert statuses(merge_remote(local, remote).compactions) == {1: S.SUBMITTED, 2: S.SUBMITTED, 3: S.FAILED}


@pytest.mark.fault("F4.20")
def test_a_claim_that_was_given_back_between_two_looks_leaves_its_progress():
    """A worker claims, publishes, and releases before the coordinator polls."""
    progress = CompactionContext(subcompactions=(Subcompaction(range=EVERYTHING),), retention_min_seq=Seq(7))
    mine = entry(1, WHAT, S.SCHEDULED)
    theirs = replace(mine, ctx=progress)
    assert merge_remote(compactions(mine), compactions(theirs)).compactions.entries == (theirs,)
