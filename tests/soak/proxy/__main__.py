"""``python -m tests.soak.proxy``: a proxy whose rules are in a file.

``--rules FILE`` holds JSON, ``{"store-errors": 0.2}``, and is read again and again.  ``--counts FILE`` is written
once a second: how many requests there were, and how many met which fault.
"""

import argparse
import asyncio
import json
import random
from pathlib import Path

from tests.soak.proxy.rules import Rules
from tests.soak.proxy.server import Proxy

RULES_S, COUNTS_S = 0.1, 1.0


def _read(file: Path) -> dict[str, float]:
    shares: dict[str, float] = json.loads(file.read_text())
    return shares


async def follow(file: Path, rules: Rules) -> None:
    """Apply the rules of a file, which is replaced as a whole."""
    while True:
        rules.shares = _read(file)
        await asyncio.sleep(RULES_S)


async def count(file: Path, proxy: Proxy, rules: Rules) -> None:
    """Write the counts once a second."""
    while True:
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"requests": proxy.requests, **rules.counts}))
        fresh.replace(file)
        await asyncio.sleep(COUNTS_S)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until the process is ended."""
    rules = Rules(random.Random(arguments.seed))
    host, _, port = arguments.server.rpartition(":")
    proxy = Proxy(host, int(port), rules)
    server = await asyncio.start_server(proxy.serve, arguments.host, arguments.port, limit=1 << 20)
    async with server, asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(arguments.rules, rules))
        tasks.create_task(count(arguments.counts, proxy, rules))


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="tests.soak.proxy")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", required=True, help="HOST:PORT of the S3 server")
    parser.add_argument("--rules", type=Path, required=True)
    parser.add_argument("--counts", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
