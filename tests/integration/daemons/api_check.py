"""``python -m tests.integration.daemons.api_check``: every call of every port, as its OpenAPI document describes it.

Starts a writer, a reader, a compactor and a collector, without and with tokens, and sends valid and invalid requests
that schemathesis makes of the documents of their ports.  Each response must be one that is described.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, CheckContext, Response
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.integration.daemons.daemon_process import Daemon, running

EXAMPLES = 5
SEED = 5
TOKEN = "token-of-the-api-check"
WRITER = ("--port", "0", "--set", "flush_interval=5ms", "--set", "merge_operator=concatenate")
ROLES = {
    "writer": ("shale_writer", *WRITER),
    "reader": ("shale_reader", "--port", "0", "--set", "merge_operator=concatenate"),
    "compactor": ("shale_compactor",),
    "gc": ("shale_gc",),
}


STATE = frozenset({410, 412, 422})
"""Statuses that depend on the state of the database, not on the request."""
RULES = (
    "use one or the other",
    "the transaction is empty",
    "not a scan token",
    "the token belongs to another scan",
    "several lifetimes",
    "is not a duration",
    "is too long",
    "must be between 1 and",
    "is off here",
)
"""Parts of the details of refusals whose rules no schema can tell."""


def valid_requests_are_accepted(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """Check that a request is accepted that follows the schema, and the rules that no schema can tell."""
    if response.status_code in STATE or any(rule in response.text for rule in RULES):
        return None
    return positive_data_acceptance(ctx, response, case)


def invalid_requests_are_refused(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """Check that a request is refused that does not follow the schema."""
    return None if response.status_code in STATE else negative_data_rejection(ctx, response, case)


def daemons(folder: Path, stack: ExitStack, *, token: str | None) -> Iterator[tuple[str, int]]:
    """Start one process of each role; yield the name and number of each of their ports."""
    env = {} if token is None else {"SHALE_TOKENS__ADMIN": token}
    started: dict[str, Daemon] = {}
    for role, (module, *options) in ROLES.items():
        command = (module, "--url", f"file://{folder}/store/db", "--set", "store.start_timeout=60s", *options)
        started[role] = stack.enter_context(running(*command, log=folder / f"{role}.log", env=env))
    for role, daemon in started.items():
        ready = daemon.wait_for("daemon.ready")
        yield f"{role}, admin port", ready["admin_port"]
        if "port" in ready:
            yield f"{role}, data port", ready["port"]
        require_silence(daemon)


def require_silence(daemon: Daemon) -> None:
    """Fail if a daemon has ended or logged an error."""
    assert daemon.process.poll() is None, daemon.log.read_text()
    errors = [line for line in daemon.lines() if line["level"] in ("error", "critical")]
    assert not errors, errors


def findings(port: int, *, token: str | None, examples: int) -> Iterator[str]:
    """Yield what the calls of a port answer that is not described."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json", headers=headers)
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:

            @seed(SEED)
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
                verbosity=Verbosity.quiet,
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case) -> None:  # type: ignore[no-untyped-def]
                case.call_and_validate(
                    headers=headers,
                    excluded_checks=[positive_data_acceptance, negative_data_rejection],
                    additional_checks=[valid_requests_are_accepted, invalid_requests_are_refused],
                )

            try:
                ask()
            except Unsatisfiable:  # a call without parameters and body has no invalid request
                continue
            except (Exception, FailureGroup) as error:  # noqa: BLE001 - each finding is one of many kinds of errors
                yield f"{operation.label}, {mode.value}: {error}"


def main() -> int:
    """Check all ports; return how many findings there are, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.daemons.api_check")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="valid and invalid requests of each call")
    parser.add_argument("--port", default="", help="only ports whose name has this part")
    chosen = parser.parse_args()
    count = 0
    start_s = time.monotonic()
    for token in (None, TOKEN):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            for port_name, port in daemons(Path(name), stack, token=token):
                if chosen.port in port_name:
                    port_start_s = time.monotonic()
                    for finding in findings(port, token=token, examples=chosen.examples):
                        count += 1
                        print(f"{port_name}, {'a' if token else 'no'} token: {finding}\n", flush=True)
                    print(f"{port_name}, {'a' if token else 'no'} token: {time.monotonic() - port_start_s:.0f} s")
    print(f"{count} findings after {time.monotonic() - start_s:.0f} s")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
