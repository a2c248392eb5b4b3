"""The responses of the collector's admin port match its description."""

import pytest

from tests.integration.daemons.daemon_process import Daemon
from tests.integration.daemons.openapi_requests import ask_as_described
from tests.integration.gc.test_process import gc, write

CALLS = ["gcStatus", "startGc", "planGc", "createCheckpoint", "listCheckpoints", "refreshCheckpoint", "getLogLevel"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("described")
    write(folder)
    with gc(folder) as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_answers_are_as_described(daemon: Daemon, name: str) -> None:
    ask_as_described(daemon.port("admin_port"), name)
    assert daemon.process.poll() is None
