"""Rows that the check writes, and reads back."""

import base64
import contextlib
import json
import threading
import time
import urllib.request
from typing import Any

from tests.integration.compose_check.engine import TOKEN, CheckError, Engine, say

ROWS = 2000


def call(port: int, path: str, body: Any) -> bytes:
    """Call the writer or the reader."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write_rows(engine: Engine, batch: int) -> None:
    """Write one batch, durably."""
    ops = [["put", _b64(b"%d/%06d" % (batch, row)), _b64(b"value %d" % row)] for row in range(ROWS)]
    call(engine.port, "/v1/batch", {"ops": ops})


def missing_rows(port: int, batches: int) -> str | None:
    """Return the difference between a full scan and all rows of the given number of batches, if any."""
    try:
        *lines, end = (json.loads(line) for line in call(port, "/v1/scan", {}).splitlines())
    except OSError as error:
        return str(error)
    keys = [base64.b64decode(line["key"]) for line in lines]
    wanted = [b"%d/%06d" % (batch, row) for batch in range(batches) for row in range(ROWS)]
    return None if keys == wanted and end.get("end") else f"{len(keys)} rows came back instead of {len(wanted)}"


def check_rows(engine: Engine, batches: int) -> None:
    """Read all rows back."""
    if (complaint := missing_rows(engine.port, batches)) is not None:
        raise CheckError(complaint)


def check_stop_under_load(engine: Engine) -> list[int]:
    """SIGTERM while a client writes: exit code 0, and every acknowledged batch exists afterwards; return those."""
    acknowledged: list[int] = []

    def load() -> None:
        with contextlib.suppress(OSError):
            for batch in range(1000, 2000):
                write_rows(engine, batch)
                acknowledged.append(batch)

    client = threading.Thread(target=load)
    client.start()
    time.sleep(3)
    (before,) = engine.inspect("writer")
    start = time.monotonic()
    engine.run("stop", "-t", "30", before["Id"])
    stop_s = time.monotonic() - start
    client.join()
    (after,) = json.loads(engine.run("inspect", before["Id"]))
    code = after["State"]["ExitCode"]
    if code != 0 or not acknowledged:
        raise CheckError(f"the writer was stopped under load: exit code {code}, {len(acknowledged)} batches before")
    engine.up("writer")
    check_batches(engine, acknowledged)
    say(f"writer stopped under load with 0 after {stop_s:.1f} s; {len(acknowledged)} acknowledged batches are there")
    return acknowledged


def check_batches(engine: Engine, batches: list[int]) -> None:
    """Read batches back, each by its prefix."""
    for batch in batches:
        lines = call(engine.port, "/v1/scan", {"prefix": _b64(b"%d/" % batch)}).splitlines()
        if len(lines) != ROWS + 1:
            raise CheckError(f"batch {batch} was acknowledged; {len(lines) - 1} of its rows came back")
