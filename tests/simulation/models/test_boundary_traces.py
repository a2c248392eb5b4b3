"""The requests of the real stores, under faults, are a run of the model of boundaries (docs/concepts/models.md)."""

from typing import Any

import pytest

from shale.protocol.boundary import Boundary
from shale.protocol.versioned_store import VersionedStore
from tests.simulation.models.boundary_trace import Trace, deviations, record
from tests.simulation.models.trace_check import SEEDS, checked, require_runs


def test_requests_of_the_real_stores_are_a_run_of_the_model() -> None:
    require_runs(record, deviations)


def test_traces_have_commits_conflicts_and_deletes() -> None:
    """A trace without them would fit any model."""
    seen = {(event[0], event[3]) for seed in range(SEEDS) for event in record(seed).events}
    assert seen >= {
        ("create", True),
        ("create", False),
        ("advance", True),
        ("delete", True),
        ("ack", True),
        ("get", False),
    }


async def _nothing(*_: object) -> None:
    return


def _trace_with(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, replacement: Any) -> Trace:
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, replacement)
        return record(0)


def test_traces_of_code_with_a_defect_are_no_runs_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    check = Boundary.check

    async def cached(boundary: Boundary, file_id: int) -> None:
        if boundary.observed is None:
            await check(boundary, file_id)

    found = checked(
        deviations,
        [
            _trace_with(monkeypatch, Boundary, "check", _nothing),
            _trace_with(monkeypatch, Boundary, "check", cached),
            _trace_with(monkeypatch, VersionedStore, "advance_boundary", _nothing),
        ],
    )
    no_check, cached_check, no_advance = (None if event is None else event[0] for event in found)
    assert no_check in {"ack", "create"}
    assert cached_check in {"ack", "create"}
    assert no_advance == "delete"
