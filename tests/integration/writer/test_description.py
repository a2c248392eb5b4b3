"""The responses of a writer's two ports match their description."""

import pytest

from tests.integration.daemons.openapi_requests import ask_as_described
from tests.integration.writer.writer_process import Client, writer

_ROWS = ("getRow", "putRow", "mergeRow", "deleteRow", "writeBatch", "commitTxn", "getMany", "scan", "scanPage")
CALLS = [*_ROWS, "openSnapshot", "renewSnapshot", "closeSnapshot"]
ADMIN_CALLS = ["createCheckpoint", "listCheckpoints", "getCheckpoint", "refreshCheckpoint", "deleteCheckpoint"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    options = ["--set", "flush_interval=5ms", "--set", "merge_operator=concatenate"]
    with writer(tmp_path_factory.mktemp("described"), *options) as one:
        yield one


@pytest.mark.parametrize("name", [*CALLS, *ADMIN_CALLS])
def test_answers_are_as_described(client: Client, name: str) -> None:
    ask_as_described(client.admin_port if name in ADMIN_CALLS else client.port, name)
    assert client.daemon.process.poll() is None
