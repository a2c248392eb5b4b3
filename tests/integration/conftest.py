"""Which processes are forks, and which start as in production."""

import pytest

from tests.integration.daemons import daemon_process


@pytest.fixture(autouse=True)
def _long_runs_start_real_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("soak") is not None:
        monkeypatch.setattr(daemon_process, "ARE_FRESH", True)
