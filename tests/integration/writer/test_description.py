"""Requests made of our own description: every answer must be one that it describes.

Seeded and bounded; what schemathesis finds becomes a test of its own elsewhere.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.writer.test_api import Client, writer

_ROWS = ("get", "put", "merge", "delete", "batch", "txn", "getMany", "scan")
CALLS = [*_ROWS, "openSnapshot", "renewSnapshot", "closeSnapshot"]
EXAMPLES = 25
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    options = ["--set", "flush_interval=5ms", "--set", "merge_operator=concatenate"]
    with writer(tmp_path_factory.mktemp("described"), *options) as one:
        yield one


@pytest.mark.parametrize("name", CALLS)
def test_answers_are_as_described(client: Client, name: str) -> None:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{client.port}/openapi.json")
    operation = schema.find_operation_by_id(name)

    @seed(5)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case) -> None:  # type: ignore[no-untyped-def]
        case.call_and_validate(checks=CHECKS)

    ask()
    assert client.daemon.process.poll() is None
