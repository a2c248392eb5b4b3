"""Requests generated from a port's own description: every response must be one that it describes.

Seeded and bounded; what schemathesis finds becomes a test of its own elsewhere.
"""

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 15
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def ask_as_described(port: int, name: str) -> None:
    """Send some requests for the operation ``name`` to the process at ``port``."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
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
