"""The daemons of the demo, with settings that turn minutes of production into seconds."""

from pathlib import Path

from shale_cli.demo.daemons import Daemon
from shale_cli.framework.ports import PortReservation

DATABASE = "flights"
GC_MIN_AGE_MS = 4_000

# Every limit below must be less than the gc's min_age (docs/reference/protocol.md, Appendix A).
_STALENESS = "2s"

_COMPACTOR = {
    "compactor_options.poll_interval": "250ms",
    "compactor_options.commit_compacted_interval": "100ms",
    "compactor_options.checkpoint_lifetime": "5s",
    "probe_max_staleness": _STALENESS,
    "compactor_options.worker.compactions_poll_interval": "200ms",
}


class Stack:
    """Creates the daemons of one database in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store_directory = directory / "store"
        self.logs = directory / "logs"
        self._ports = PortReservation()  # for as long as the demo runs
        self.url = f"file://{self.store_directory}/{DATABASE}"
        self.store_directory.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)

    def writer(self, name: str) -> Daemon:
        """Return a writer; starting a second one fences the first."""
        settings = {
            "flush_interval": "20ms",
            "l0_sst_size_bytes": "2MiB",
            "l0_max_ssts": "16",
            "l0_max_ssts_per_key": "16",
            "wal_stall_limit": _STALENESS,
            "probe_max_staleness": _STALENESS,
        }
        return self._daemon(name, "writer", settings, has_data_port=True)

    def compactor(self) -> Daemon:
        """Return a compactor: a coordinator with its embedded worker."""
        return self._daemon("compactor", "compactor", _COMPACTOR)

    def coordinator(self) -> Daemon:
        """Return a coordinator that only schedules requested compactions, for workers in other processes."""
        quiet = {"compactor_options.scheduler_options.min_compaction_sources": "8", "embedded_worker": "false"}
        return self._daemon("coordinator", "compactor", _COMPACTOR | quiet)

    def collector(self) -> Daemon:
        """Return a gc that runs every second."""
        settings = {"probe_max_staleness": _STALENESS}
        for task in ("manifest", "wal", "compacted", "compactions"):
            options = f"garbage_collector_options.{task}_options"
            settings |= {f"{options}.interval": "1s", f"{options}.min_age": f"{GC_MIN_AGE_MS}ms"}
        return self._daemon("gc", "gc", settings)

    def _daemon(self, name: str, role: str, settings: dict[str, str], *, has_data_port: bool = False) -> Daemon:
        data_port, admin_port = self._ports.reserve(), self._ports.reserve()
        options = ["--url", self.url, "--admin-port", str(admin_port)]
        if has_data_port:
            options += ["--port", str(data_port)]
        for setting, value in settings.items():
            options += ["--set", f"{setting}={value}"]
        return Daemon(name, f"shale_{role}", options, data_port, admin_port, self.logs / f"{name}.log")
