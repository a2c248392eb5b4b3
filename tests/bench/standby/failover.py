"""How long writes fail after the active writer stopped, was killed, or froze, beside a warm standby.

Default settings and fresh processes, on a directory and on S3 servers.  The time is from the signal to the first
write that the standby acknowledges as durable.
"""

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter, sleep

from tests.bench.line import BenchLine
from tests.integration.daemons.daemon_process import running
from tests.integration.standby.standby_process import Member
from tests.integration.store.servers import s3_environment, s3_server
from tests.integration.store.versitygw import find_versitygw, versitygw

CASES = {
    "a clean stop": (signal.SIGTERM, 3.0),
    "SIGKILL": (signal.SIGKILL, 10.0),
    "a freeze": (signal.SIGSTOP, 45.0),
}
"""The signal, and the most seconds that may pass."""
LIMIT_S = 90.0
PAUSE_S = 0.02


def failover_lines() -> Iterator[BenchLine]:
    """Measure each case on each store."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _lines("a directory", f"file://{folder}/store", Path(folder), {})
    with tempfile.TemporaryDirectory() as folder, s3_server("failover") as server:
        yield from _lines("S3", "s3://failover", Path(folder), s3_environment(server))
    if find_versitygw() is not None:
        with tempfile.TemporaryDirectory() as folder, versitygw("failover", Path(folder) / "objects") as server:
            yield from _lines("versitygw", "s3://failover", Path(folder), s3_environment(server))


def _lines(store: str, url: str, folder: Path, environment: Mapping[str, str]) -> Iterator[BenchLine]:
    for number, (what, (sent, limit_s)) in enumerate(CASES.items()):
        seconds = seconds_to_takeover(f"{url}/db-{number}", folder, dict(environment), sent)
        yield BenchLine(name=f"failover after {what}, {store}", ours=seconds, unit="s", target=f"at most {limit_s:g} s")


def seconds_to_takeover(
    url: str,
    folder: Path,
    environment: dict[str, str],
    sent: signal.Signals,
    settings: tuple[str, ...] = (),
    before: Callable[[Member], None] = lambda _standby: None,
) -> float:
    """Return the seconds from the signal until the standby acknowledges a write.

    Args:
        url: the database.
        folder: for logs.
        environment: of the processes.
        sent: to the active writer.
        settings: of both writers.
        before: called with the standby before the signal.
    """
    options = ("--url", url, "--port", "0", "--standby", *settings)
    log = folder / f"{sent.name}.active"
    log.unlink(missing_ok=True)
    with running("shale_writer", *options, log=log, env=environment, is_fresh=True) as first:
        active = Member(first)
        first.wait_for("daemon.ready")
        assert active.put(b"key", b"before") == 204
        log = folder / f"{sent.name}.standby"
        log.unlink(missing_ok=True)
        with running("shale_writer", *options, log=log, env=environment, is_fresh=True) as second:
            standby = Member(second)
            second.wait_for("standby.waiting")
            before(standby)
            begun_s = perf_counter()
            first.process.send_signal(sent)
            while standby.put(b"key", b"after") != 204:
                assert perf_counter() - begun_s < LIMIT_S, log.read_text()
                sleep(PAUSE_S)
            return perf_counter() - begun_s
