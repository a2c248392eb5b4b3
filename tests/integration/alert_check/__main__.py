"""``make alert-check``: fire the most important alerts with real daemons, a real Prometheus and a real Alertmanager.

python -m tests.integration.alert_check [NAME]... [--divisor N]

Each line has the alert's scenario and the seconds from its cause to the notification.  Prometheus scrapes and evaluates
every second, and the times of all rules are divided.  Not in the default tests: it takes some minutes.
"""

import argparse
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.integration.alert_check.monitoring import CheckError, Monitoring
from tests.integration.alert_check.scenarios import SCENARIOS, Check

DIVISOR = 60


def main() -> int:
    """Run the scenarios one after another; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.alert_check")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--divisor", type=int, default=DIVISOR, help="by which the times of the rules are divided")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SCENARIOS):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all processes are stopped
    failed = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        monitoring = Monitoring(folder, arguments.divisor)
        with monitoring.running():
            for name in arguments.names or SCENARIOS:
                check = Check(monitoring, folder / name, name)
                check.folder.mkdir()
                try:
                    SCENARIOS[name](check)
                except (CheckError, AssertionError, OSError) as error:
                    failed.append(name)
                    traceback.print_exception(error, limit=-2)
                    print(f"{name}: failed: {error}", flush=True)
                else:
                    print(f"{name}: {check.seconds:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
