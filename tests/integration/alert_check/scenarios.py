"""What goes wrong in each scenario, and the alert that must fire."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.integration.alert_check.daemons import READY_S, Daemon, Place, S3Proxy, s3, wait_until, writing
from tests.integration.alert_check.monitoring import CheckError, Monitoring

FIRED_S = 120.0
SMALL = ("l0_sst_size_bytes=16KiB", "flush_interval=50ms")
PASSES = "garbage_collector_options.{}_options.interval=1s"
YOUNG = "garbage_collector_options.manifest_options.min_age=1s"


class Check:
    """One run of one scenario."""

    def __init__(self, monitoring: Monitoring, folder: Path, db: str) -> None:
        self.monitoring = monitoring
        self.folder = folder
        self.place = Place(monitoring, folder, db)
        self.seconds = 0.0

    def on_s3(self, stack: ExitStack, name: str) -> tuple[S3Proxy, Place]:
        """Run an S3 server; return its proxy and the database on it."""
        proxy = stack.enter_context(s3(self.folder))
        return proxy, Place(self.monitoring, self.folder, name, "s3://bucket/orders", proxy.url)

    def expect(self, alert: str, since_s: float) -> None:
        """Wait for the notification of an alert; set the seconds since its cause."""
        receiver, db = self.monitoring.receiver, self.place.db
        deadline_s = since_s + FIRED_S
        while (fired_s := receiver.fired_s(alert, db, since_s)) is None:
            if time.monotonic() > deadline_s:
                raise CheckError(f"no {alert} within {FIRED_S:g} s; fired: {', '.join(receiver.fired(db)) or 'none'}")
            time.sleep(0.05)
        self.seconds = fired_s - since_s


def fenced(check: Check) -> None:
    """A second writer takes over; the first one ends when it was scraped, long before the alert."""
    with check.place.writer() as first:
        since_s = time.monotonic()
        with check.place.writer():
            first.wait_for("daemon.lingering_ended")
            assert '"reason":"scraped"' in first.log.read_text(), "the first writer did not end with its scrape"
            check.expect("SlateDBFenced", since_s)


def corrupt(check: Check) -> None:
    """The manifest is damaged while no process runs; the writer ends with 65 at its start."""
    with check.place.writer() as first:
        assert first.put("a", b"1")
    newest = max((check.place.files / "manifest").iterdir())
    newest.write_bytes(b"no manifest")
    since_s = time.monotonic()
    with check.place.daemon("shale_writer"):
        check.expect("SlateDBCorruption", since_s)


def store_down(check: Check) -> None:
    """The store stops answering a running writer."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        writer = stack.enter_context(place.writer("ready.grace=1s"))
        assert writer.put("a", b"1")
        since_s = _cut(proxy)
        check.expect("SlateDBObjectStoreDown", since_s)


def store_never_reached(check: Check) -> None:
    """A writer starts without its store."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        since_s = _cut(proxy)
        stack.enter_context(place.daemon("shale_writer"))
        check.expect("SlateDBWriterDown", since_s)
        check.expect("SlateDBObjectStoreDown", since_s)


def disk_full(check: Check) -> None:
    """The file system of the store has no room for the next WAL file."""
    disk = check.folder / "store"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
        raise CheckError("a small file system needs root")
    try:
        with check.place.writer() as writer:
            assert writer.put("a", b"1")
            with contextlib.suppress(OSError), (disk / "filler").open("wb") as filler:
                while True:
                    filler.write(b"x" * 4096)
                    filler.flush()
            since_s = time.monotonic()
            with writing(writer, size=8000, durability="memory"):
                check.expect("SlateDBWALFlushFailing", since_s)
            (disk / "filler").unlink()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def l0_stalled(check: Check) -> None:
    """No compactor runs, and L0 is full."""
    with check.place.writer(*SMALL, "l0_max_ssts=2") as writer:
        since_s = time.monotonic()
        with writing(writer, size=16000):
            check.expect("SlateDBL0Stalled", since_s)


def back_pressure(check: Check) -> None:
    """Too many bytes are in memory, because L0 is full."""
    with check.place.writer(*SMALL, "l0_max_ssts=2", "max_unflushed_bytes=128KiB") as writer:
        since_s = time.monotonic()
        with writing(writer, size=16000, durability="memory"):
            check.expect("SlateDBBackpressure", since_s)


def gc_dead(check: Check) -> None:
    """The gc is killed."""
    with check.place.writer(), check.place.daemon("shale_gc") as gc:
        gc.wait_for("daemon.ready")
        _scraped()
        gc.child.kill()
        check.expect("SlateDBGCDown", time.monotonic())


def gc_without_success(check: Check) -> None:
    """No pass of a gc succeeds from its start."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        stack.enter_context(place.writer())
        since_s = time.monotonic()
        gc = stack.enter_context(place.daemon("shale_gc", *(PASSES.format(task) for task in ("manifest", "wal"))))
        gc.wait_for("daemon.ready")
        _cut(proxy)
        check.expect("SlateDBGCNotRunning", since_s)


def clock_skew(check: Check) -> None:
    """The clock of the store is set while the writer runs."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        stack.enter_context(place.writer("store.clock_check_interval=1s"))
        proxy.ahead_s = 60.0
        check.expect("SlateDBClockSkew", time.monotonic())


def reader_stale(check: Check) -> None:
    """A reader does not reach the store; the writer does."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        reached = stack.enter_context(S3Proxy(proxy.upstream).running())
        writer = stack.enter_context(place.writer())
        settings = ("manifest_poll_interval=500ms", "checkpoint_lifetime=10m")
        reader = stack.enter_context(place.daemon("shale_reader", *settings, endpoint=reached.url))
        reader.wait_for("daemon.ready")
        stack.enter_context(writing(writer))
        _scraped()
        since_s = _cut(reached)
        check.expect("SlateDBReaderStale", since_s)


def flapping(check: Check) -> None:
    """Writers fence each other; each has an address of its own."""
    with ExitStack() as stack:
        stack.enter_context(check.place.writer())
        since_s = time.monotonic()
        for _ in range(8):
            stack.enter_context(check.place.daemon("shale_writer"))
            time.sleep(1.5)  # their takeovers must lie in one window of the rule, however long a start takes
        check.expect("SlateDBFencingFlap", since_s)


def compaction_failing(check: Check) -> None:
    """An SST that a compaction reads is damaged."""
    with (
        check.place.writer(*SMALL, "l0_max_ssts=16") as writer,
        check.place.daemon("shale_compactor", "compactor_options.poll_interval=1s") as compactor,
    ):
        compactor.wait_for("daemon.ready")
        compacted = check.place.files / "compacted"
        _fill(writer, compacted, 1)
        for sst in compacted.iterdir():
            sst.write_bytes(b"\0" * sst.stat().st_size)
        since_s = time.monotonic()
        _fill(writer, compacted, 8)
        check.expect("SlateDBCompactionFailed", since_s)


def boundary_lost(check: Check) -> None:
    """A boundary file is deleted; the gc ends with 70."""
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(check.place.writer())
        gc = stack.enter_context(check.place.daemon("shale_gc", PASSES.format("manifest"), YOUNG))
        gc.wait_for("daemon.ready")
        boundary = check.place.files / "gc" / "manifest.boundary"
        wait_until(boundary.exists, "boundary file")
        boundary.unlink()
        check.expect("SlateDBProtocolPanic", time.monotonic())


def stale_write(check: Check) -> None:
    """A writer stands still in the middle of a commit until its successors' versions are deleted."""
    with ExitStack() as stack:
        proxy, place = check.on_s3(stack, check.place.db)
        held = stack.enter_context(S3Proxy(proxy.upstream).running())
        patient = (*SMALL, "store.request_timeout=10m", "manifest_poll_interval=10m")
        stalled = stack.enter_context(place.daemon("shale_writer", *patient, endpoint=held.url))
        stalled.wait_for("daemon.ready")
        _scraped()
        held.delayed = "/manifest/"
        with writing(stalled, size=16000):
            wait_until(lambda: bool(held.waiting), "commit of the writer")
        assert stalled.put("last", b"1", timeout_s=READY_S)  # else its next WAL file fences it before the commit ends
        stalled.child.send_signal(signal.SIGSTOP)
        for _ in range(3):
            stack.enter_context(place.writer())
        (version, *_) = held.waiting
        assert proxy.exists(version), "the second writer took the version"
        gc = stack.enter_context(place.daemon("shale_gc", PASSES.format("manifest"), YOUNG))
        gc.wait_for("daemon.ready")
        wait_until(lambda: not proxy.exists(version), f"deletion of {version}")
        since_s = time.monotonic()
        held.go_on.set()
        wait_until(lambda: proxy.exists(version), f"late create of {version}")
        stalled.child.send_signal(signal.SIGCONT)
        check.expect("SlateDBStaleWriteRejected", since_s)


def _cut(proxy: S3Proxy) -> float:
    """Cut a store off; return the time."""
    _scraped()
    proxy.is_down = True
    return time.monotonic()


def _scraped() -> None:
    """Wait until Prometheus has read the daemons that run: it does so every second."""
    time.sleep(3)


def _fill(writer: Daemon, compacted: Path, count: int) -> None:
    """Write until ``count`` SSTs exist."""
    number = 0

    def written() -> bool:
        nonlocal number
        number += 1
        writer.put(f"fill{number:06}", b"x" * 8000)
        return compacted.is_dir() and len(list(compacted.iterdir())) >= count

    wait_until(written, f"{count} SSTs")


SCENARIOS: dict[str, Callable[[Check], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        fenced, corrupt, store_down, store_never_reached, disk_full, l0_stalled, back_pressure, gc_dead,
        gc_without_success, clock_skew, reader_stale, flapping, compaction_failing, boundary_lost,
        stale_write,
    )
}  # fmt: skip
