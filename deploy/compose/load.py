"""Write orders through a writer at a steady rate, until SIGTERM: ``load.py URL ROWS_PER_S TOKEN_FILE``.

Rows have the keys of a million orders, so that the database stops growing and compaction has old values to drop.  One
line each ten seconds says how it goes.  A writer that does not answer is asked again.
"""

import base64
import json
import random
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ORDERS = 1_000_000
BATCHES_PER_S = 5
SECONDS_PER_LINE = 10
RETRY_S = 1.0
STATES = ("placed", "paid", "packed", "sent", "delivered", "returned")


def batch(rng: random.Random, rows: int) -> dict[str, Any]:
    """Return one batch for ``POST /v1/batch``; one operation in fifty is a delete."""
    ops: list[list[str]] = []
    for number in rng.sample(range(ORDERS), rows):
        key = _b64(b"order/%07d" % number)
        if rng.random() < 0.02:
            ops.append(["delete", key])
            continue
        order = {"state": rng.choice(STATES), "customer": rng.randrange(50_000), "cents": rng.randrange(100, 100_000)}
        ops.append(["put", key, _b64(json.dumps(order).encode())])
    return {"ops": ops}


def send(url: str, body: dict[str, Any], token: str) -> None:
    """Send a batch; it is durable when this returns.

    Raises:
        OSError: the writer does not answer, or rejects the batch.
    """
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/v1/batch", data=json.dumps(body).encode(), headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


def load(url: str, rows_per_s: int, token: str) -> None:
    """Write until the process ends."""
    rng = random.Random()
    rows = max(1, rows_per_s // BATCHES_PER_S)
    written, failed, told = 0, 0, time.monotonic()
    while True:
        begun = time.monotonic()
        try:
            send(url, batch(rng, rows), token)
        except OSError as error:
            failed += 1
            _say(f"{error}: trying again")
            time.sleep(RETRY_S)
            continue
        written += rows
        now = time.monotonic()
        if now - told >= SECONDS_PER_LINE:
            _say(f"{written} rows written, {failed} requests failed, {now - begun:.3f} s for the last batch")
            told = now
        time.sleep(max(0.0, begun + rows / rows_per_s - now))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    load(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).read_text().strip())
