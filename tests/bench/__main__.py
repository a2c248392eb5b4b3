"""``make bench``: the table of docs/concepts/architecture.md's promises, every line measured in this run.

python -m tests.bench [codec|manifest|compaction|calls|durable|two-phase|ingest|bulk|caching|transactions|resp|http
                       |console|scrape|tracing|limits|sync|cli|cold|start|failover|failover-wal|scale|scale-real
                       |parallel-wal]... [--large]

``--large`` adds to ``cold`` the lines of databases on disk, which take five minutes and 8 GB, and to ``compaction`` one
of 10 GB, which takes 20 minutes and up to 42 GB of disk.
"""

from tests.bench.suites import Suites

ENTRY_POINTS = {
    "codec": "tests.bench.codec:codec_lines",
    "manifest": "tests.bench.manifest:manifest_lines",
    "compaction": "tests.bench.compaction.suite:compaction_lines",
    "calls": "tests.bench.calls:call_lines",
    "durable": "tests.bench.durable:durable_lines",
    "parallel-wal": "tests.bench.parallel_wal:parallel_wal_lines",
    "two-phase": "tests.bench.two_phase:two_phase_lines",
    "ingest": "tests.bench.ingest:ingest_lines",
    "bulk": "tests.bench.cli.bulk:bulk_lines",
    "caching": "tests.bench.caching:caching_lines",
    "transactions": "tests.bench.transactions:transaction_lines",
    "resp": "tests.bench.resp:resp_lines",
    "http": "tests.bench.http.suite:http_lines",
    "console": "tests.bench.console:console_lines",
    "scrape": "tests.bench.http.scrape:scrape_lines",
    "tracing": "tests.bench.http.tracing:tracing_lines",
    "limits": "tests.bench.http.limits:limit_lines",
    "sync": "tests.bench.sync:sync_lines",
    "cli": "tests.bench.cli.commands:cli_lines",
    "cold": "tests.bench.cold.suite:cold_lines",
    "start": "tests.bench.start:start_lines",
    "failover": "tests.bench.standby.failover:failover_lines",
    "failover-wal": "tests.bench.standby.large_wal:large_wal_lines",
    "scale": "tests.bench.scale.suite:scale_lines",
    "scale-real": "tests.bench.scale.real:real_lines",
}
WITH_LARGE = ("compaction", "cold")


def main() -> None:
    """Print the lines of the chosen suites."""
    suites = Suites("python -m tests.bench", ENTRY_POINTS)
    suites.parser.add_argument(
        "--large", action="store_true", help="large databases, too: up to 20 minutes and 42 GB of disk"
    )
    arguments = suites.parse()
    for name in arguments.suites:
        options = {"large": True} if arguments.large and name in WITH_LARGE else {}
        for line in suites.load(name)(**options):
            print(line, flush=True)


if __name__ == "__main__":
    main()
