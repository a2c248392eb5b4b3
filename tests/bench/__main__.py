"""``make bench``: the table of docs/architecture.md's promises, every line measured in this run.

python -m tests.bench [codec|compaction|calls|durable|ingest|caching|transactions|resp|http|sync]... [--large]

``--large`` adds the compaction of 10 GB, which takes 20 minutes and up to 42 GB of disk.
"""

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.line import BenchLine

SUITES = {
    "codec": "codec_lines",
    "compaction": "compaction_lines",
    "calls": "call_lines",
    "durable": "durable_lines",
    "ingest": "ingest_lines",
    "caching": "caching_lines",
    "transactions": "transaction_lines",
    "resp": "resp_lines",
    "http": "http_lines",
    "sync": "sync_lines",
    "cli": "cli_lines",
}


def main() -> None:
    """Print the lines of the suites that were asked for, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}; default: all")
    parser.add_argument("--large", action="store_true", help="compact 10 GB too: 20 minutes, up to 42 GB of disk")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    for name in arguments.suites or SUITES:
        lines: Callable[..., Iterable[BenchLine]] = getattr(import_module(f"tests.bench.{name}"), SUITES[name])
        for line in lines(large=True) if arguments.large and name == "compaction" else lines():
            print(line, flush=True)


if __name__ == "__main__":
    main()
