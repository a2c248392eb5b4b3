"""Which processes are forks, and which are as in production."""

import pytest

from tests.integration.daemons import running


@pytest.fixture(autouse=True)
def _long_runs_start_real_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("soak") is not None:
        monkeypatch.setattr(running, "ARE_FRESH", True)
