"""A client that writes through a Service and records what came of it: ``python -m tests.kube.load.client``.

Every thread writes one row after the other, in turns to a new key and to its own key; it makes one attempt per write.
"""

import argparse
import http.client
import threading
import time
from pathlib import Path

from tests.kube.load.history import Outcome, Write, append, own_key, shared_key

TIMEOUT_S, PAUSE_S = 10.0, 0.05
# With these the writer never took the write.  After 421 it may be there: another writer replays what was under way.
REJECTED = (401, 403, 429)


def put(host: str, port: int, key: str, value: str, token: str) -> Outcome:
    """Write one row and return what is known about it."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", f"/v1/kv/{key}", value.encode(), {"Authorization": f"Bearer {token}"})
        status = connection.getresponse().status
    except ConnectionRefusedError:
        return "rejected"
    except (OSError, http.client.HTTPException):
        return "unknown"
    finally:
        connection.close()
    if status == 204:
        return "acknowledged"
    return "rejected" if status in REJECTED else "unknown"


def write_until(stop: Path, client: int, arguments: argparse.Namespace, lock: threading.Lock) -> None:
    """Write until the file ``stop`` exists."""
    number = arguments.after
    while not stop.exists():
        number += 1
        key = own_key(client, number) if number % 2 else shared_key(client)
        value = f"{client}/{number}"
        start = time.monotonic()
        outcome = put(arguments.host, arguments.port, key, value, arguments.token_file.read_text())
        with lock:
            append(arguments.history, Write(client, number, key, outcome, start, time.monotonic()))
        time.sleep(PAUSE_S if outcome == "acknowledged" else PAUSE_S * 2)


def main() -> None:
    """Run all threads until the file ``--stop`` exists."""
    parser = argparse.ArgumentParser(description="Write rows and record the outcomes.")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--after", type=int, default=0, help="the highest number that was used before")
    arguments = parser.parse_args()
    lock = threading.Lock()
    threads = [
        threading.Thread(target=write_until, args=(arguments.stop, client, arguments, lock))
        for client in range(arguments.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
