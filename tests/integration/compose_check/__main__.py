"""Checks, in this order.

The image keeps its size, has no secret in its history, and runs as any user.  Within 60 s there is a page with
numbers.  Admin ports need the token.  Rows that were written before a hard kill of each daemon, and of the store, are
read after it, at the writer and then at the reader.  Prometheus has every target up and knows how far the reader lags;
Grafana shows the dashboards.  A killed writer raises an alert that is resolved when it is back.  A writer that is
stopped under load ends with 0 and loses no acknowledged row.  Every row is there after ``down`` and ``up``.  The load
of the demo runs.  Beside another endpoint the store ends at once, or is left out.  ``down`` takes at most 15 s.
"""

import contextlib
import sys
import time

from tests.integration.compose_check import images, monitoring, rows
from tests.integration.compose_check.engine import DAEMONS, HEALTHY_S, CheckError, Engine, say, wait_until

PAGE_S, DOWN_S = 60.0, 15.0
LOADED_S = 45.0


def check(engine: Engine) -> None:
    """Run all checks on the stack."""
    start = time.monotonic()
    engine.start()
    wait_until("the first page", HEALTHY_S, lambda: monitoring.no_page(engine))
    page_s = time.monotonic() - start
    say(f"the first page has numbers of the writer after {page_s:.1f} s")
    wait_until("up", HEALTHY_S, engine.complaint)
    say(f"all {len(engine.services)} services healthy after {time.monotonic() - start:.1f} s")
    if page_s > PAGE_S:
        raise CheckError(f"the first page took {page_s:.0f} s; at most {PAGE_S:.0f}")
    check_admin_port(engine)
    batches = check_kills(engine)
    followed_s = wait_until("reader", monitoring.FOLLOWED_S, lambda: rows.missing_rows(engine.reader_port, batches))
    say(f"the reader serves what was written after {followed_s:.1f} s")
    monitoring.check_targets(engine)
    if engine.has_grafana:
        monitoring.check_page(engine)
    monitoring.check_alert(engine)
    rows.check_rows(engine, batches)
    acknowledged = rows.check_stop_under_load(engine)
    down_s = engine.down()
    say(f"down after {down_s:.1f} s; up again after {engine.up():.1f} s")
    rows.check_batches(engine, [*range(batches), *acknowledged])
    say(f"all {(batches + len(acknowledged)) * rows.ROWS} rows are there after down and up")
    check_demo(engine)
    check_other_endpoint(engine)


def check_kills(engine: Engine) -> int:
    """Kill each daemon and the store; return how many batches of rows there are."""
    rows.write_rows(engine, 0)
    for batch, service in enumerate((*DAEMONS, "store"), start=1):
        engine.compose("kill", "-s", "KILL", service)
        back_s = engine.up(service)
        rows.check_rows(engine, batch)
        rows.write_rows(engine, batch)
        say(f"{service} killed and healthy again after {back_s:.1f} s; {batch * rows.ROWS} rows read back")
    rows.check_rows(engine, len(DAEMONS) + 2)
    return len(DAEMONS) + 2


def check_admin_port(engine: Engine) -> None:
    """Calls of the admin port need the token, which commands in the container have."""
    program = (
        "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', 9464);"
        "f = open(os.environ['SHALE_ADMIN_TOKEN_FILE']).read();"
        "t = {'Authorization': 'Bearer ' + f} if sys.argv[1:] else {};"
        "c.request('GET', '/v1/admin/log-level', headers=t); print(c.getresponse().status)"
    )
    for daemon in DAEMONS:
        command = ("exec", "-T", daemon, "python", "-c", program)
        statuses = engine.compose(*command).strip(), engine.compose(*command, "token").strip()
        if statuses != ("401", "200"):
            raise CheckError(f"the admin port of {daemon} answers {statuses} without and with the token")
    say("the admin ports of all daemons answer 401 without the token, and 200 with it")


def check_demo(engine: Engine) -> None:
    """The load of the profile ``demo`` writes rows."""

    def complaint() -> str | None:
        log = engine.compose("--profile", "demo", "logs", "demo-load")
        return None if "rows written" in log else f"the log is {log}"

    engine.compose("--profile", "demo", "up", "-d", "--no-build", "demo-load")
    loaded_s = wait_until("demo-load", LOADED_S, complaint)
    say(f"demo-load reports its rows after {loaded_s:.1f} s")


def check_other_endpoint(engine: Engine) -> None:
    """Beside another endpoint the store ends at once, and well; ``STORE=0`` leaves it out."""

    def complaint() -> str | None:
        (container,) = engine.inspect("store")
        state = container["State"]
        return None if (state["Status"], state["ExitCode"]) == ("exited", 0) else str(state)

    engine.compose("--profile", "demo", "stop", "-t", "10")
    engine.compose("up", "-d", "--no-build", "store", SHALE_S3_ENDPOINT="https://s3.eu-central-1.amazonaws.com")
    ended_s = wait_until("the store beside another endpoint", HEALTHY_S, complaint)
    say(f"beside another endpoint the store ends with 0 after {ended_s:.1f} s")
    engine.compose("up", "--no-start", "--no-build", "gc", STORE="0")
    if not engine.inspect("gc") or engine.inspect("store"):
        raise CheckError("with STORE=0 a daemon has a container, and the store has none")


def main() -> int:
    """Build, check, take down; return 0 if all checks pass."""
    engine = Engine()
    start = time.monotonic()
    try:
        images.build(engine)
        images.check_size(engine)
        images.check_history(engine)
        images.check_any_user(engine)
        try:
            check(engine)
        except CheckError:
            for service in engine.services:
                with contextlib.suppress(CheckError):
                    sys.stderr.write(engine.compose("logs", "--tail=15", service))
            raise
        finally:
            down_s = engine.down("-v", "--remove-orphans")
            say(f"down after {down_s:.1f} s")
        if down_s > DOWN_S:
            raise CheckError(f"down took {down_s:.0f} s; at most {DOWN_S:.0f}")
    except CheckError as error:
        sys.stderr.write(f"compose check failed: {error}\n")
        return 1
    say(f"everything held, in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
