"""One run: load and faults, then quiet, then the judgement."""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.soak.checker.anomaly import Findings
from tests.soak.checker.change_feed import SUFFIX
from tests.soak.checker.verdict import check_history
from tests.soak.judge import database
from tests.soak.judge.exits import unexplained
from tests.soak.judge.logs import complaints
from tests.soak.plan.faults import DAEMONS, KINDS, Fault, clock_skew_s, draw_faults, possible_kinds
from tests.soak.plan.options import Options
from tests.soak.report.result import Result, Verdict
from tests.soak.run.site import Site

TICK_S, SAMPLE_S, VERIFY_S = 0.1, 1.0, 120.0
QUIET_S = 8.0
FEED_S = 120.0


def say(text: str) -> None:
    """Print one line with the time of day."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


class Soak:
    """One run from its start to its verdict."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.site = Site(options)
        absent = set(DAEMONS) - set(self.site.daemon_nodes)
        kinds = possible_kinds(options.faults, self.site.abilities, absent=absent)
        self.faults = draw_faults(options.seed, options.seconds, kinds, pause_s=options.pause_s)
        everything = possible_kinds(options.faults, {kind.needs for kind in KINDS.values()})
        self.left_out = sorted({kind.name for kind in everything} - {kind.name for kind in kinds})
        self.begin_at = 0.0
        self.load_ended_at = 0.0
        self._verified: list[tuple[float, database.Verified]] = []
        self._verifier: threading.Thread | None = None

    def run(self) -> Result:
        """Run and judge; everything that was started is ended."""
        try:
            say(f"seed {self.options.seed}: {len(self.faults)} faults in {self.options.seconds:.0f} s")
            if self.left_out:
                say(f"this machine does not allow {', '.join(self.left_out)}")
            self.site.start()
            self.begin_at = time.monotonic()
            self._load()
            verdicts, rows = self._quiet()
        finally:
            self.site.close()
        findings = self._check_history()
        return self._result(verdicts, rows, findings)

    def _load(self) -> None:
        """Inject the faults at their times while the clients work."""
        waiting = list(self.faults)
        ends: list[tuple[float, Fault]] = []
        sample_at = verify_at = 0.0
        while (passed := time.monotonic() - self.begin_at) < self.options.seconds:
            self.site.supervisor.tend()
            self.site.injector.settle_rivals()
            while waiting and waiting[0].at_s <= passed:
                fault = waiting.pop(0)
                done = self.site.injector.begin(fault)
                say(f"{passed:7.1f} s  {fault.kind} of {fault.target}: {done}")
                if fault.duration_s:
                    ends.append((passed + fault.duration_s, fault))
            for each in [each for each in ends if each[0] <= passed]:
                ends.remove(each)
                self.site.injector.end(each[1].number)
            if passed >= sample_at:
                self.site.memory.sample(self.site.supervisor.pids())
                sample_at = passed + SAMPLE_S
            if passed >= verify_at + VERIFY_S:
                self._verify_meanwhile()
                verify_at = passed
            time.sleep(TICK_S)
        self.site.injector.end_all()
        self.load_ended_at = time.monotonic()

    def _verify_meanwhile(self) -> None:
        """Verify in a thread, beside load and faults."""
        if self._verifier is not None and self._verifier.is_alive():
            return

        def verify() -> None:
            verified = database.verify(self.site.run_command)
            self._verified.append((time.monotonic(), verified))
            self.site.events.add("verify", "database", f"exit {verified.code}, {verified.objects} objects")

        self._verifier = threading.Thread(target=verify)
        self._verifier.start()

    def _tend_for(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Keep all processes running for a while; return whether ``until`` became true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if until():
                return True
            self.site.supervisor.tend()
            self.site.injector.settle_rivals()
            time.sleep(TICK_S)
        return until()

    def _quiet(self) -> tuple[list[Verdict], int]:
        """Stop the load, let everything recover, and look at what is there."""
        supervisor = self.site.supervisor
        say("no more faults; the clients go on until all have recovered")
        self._tend_for(QUIET_S)
        if self._verifier is not None:
            self._verifier.join()
        clients = [name for name in supervisor.nodes if name.startswith("client-")]
        others = [name for name in clients if name != "client-feed"]
        late = supervisor.stop([*others, *(name for name in supervisor.nodes if name.startswith("wheel-"))])
        final = self._read_everything()
        supervisor.pause(["client-feed"])
        late += supervisor.stop(["client-feed"])
        verdicts = [_verdict("clients end on SIGTERM", late)]
        said = json.loads(final) if final.startswith("{") else {"rows": 0, "readers": {"all": [final]}}
        differing = [f"{name}: {', '.join(found)}" for name, found in said["readers"].items() if found]
        verdicts.append(_verdict("readers of both libraries show the rows of the writer", differing))
        judged = self.site.daemon_nodes
        last = database.verify(self.site.run_command, deep=True)
        findings = [f"at the end: {each}" for each in last.findings] if last.code else []
        for at, verified in self._verified:
            if verified.code == database.FINDINGS:
                findings += [f"{at - self.begin_at:.0f} s: {each}" for each in verified.findings]
        verdicts.append(_verdict("verify finds nothing", findings, f"{len(self._verified) + 1} runs"))
        late = supervisor.stop([name for name in judged if name != "gc"])
        verdicts.append(_verdict("gc leaves no garbage older than its cutoff", self._garbage()))
        late += supervisor.stop(["gc"])
        verdicts.append(_verdict("daemons end on SIGTERM", late))
        ended = unexplained(supervisor.exits, self.site.events, judged)
        verdicts.append(_verdict("every exit code is explained", ended, f"{len(supervisor.exits)} exits"))
        verdicts.append(_verdict("no traceback in a log", complaints(sorted(self.site.logs.glob("*.log")))))
        above = self.site.memory.above_limit(judged)
        peak = max(self.site.memory.peaks.values(), default=0) >> 20
        verdicts.append(_verdict("no daemon above its memory limit", above, f"highest {peak} MiB"))
        if self.site.groups is not None:
            groups = self.site.groups.memory()
            killed = [str(each) for each in groups if each.kills]
            verdicts.append(_verdict("the kernel killed no daemon at its limit", killed, ", ".join(map(str, groups))))
        return verdicts, int(said["rows"])

    def _read_everything(self) -> str:
        """Read the database in a thread, because the writers may still have to change."""
        found: list[str] = []

        def read() -> None:
            done = self.site.read_everything()
            found.append(done.stdout.strip() if done.returncode == 0 else (done.stdout + done.stderr)[-1500:])

        reading = threading.Thread(target=read)
        reading.start()
        self._tend_for(600, lambda: not reading.is_alive())
        reading.join()
        return found[0]

    def _garbage(self) -> list[str]:
        if self.options.is_small:
            return []
        found: list[list[str]] = []
        looking = threading.Thread(target=lambda: found.append(database.leftover_garbage(self.site.run_command)))
        looking.start()
        self._tend_for(600, lambda: not looking.is_alive())
        looking.join()
        return found[0]

    def _check_history(self) -> Findings:
        feeds = list(self.site.history.glob(f"*{SUFFIX}"))
        say("checking the history")
        return check_history(
            self.site.history,
            self.site.folder / "parts",
            feed=feeds[0] if feeds else None,
            skew_s=clock_skew_s(self.faults),
            say=say,
        )

    def _result(self, verdicts: list[Verdict], rows: int, findings: Findings) -> Result:
        anomalies = [f"{each.kind}: {each.where}: {each.text}" for each in findings.anomalies]
        checked = ", ".join(f"{count} {name}" for name, count in sorted(findings.counts.items()))
        verdicts.insert(0, _verdict("the history has no anomaly", anomalies, checked))
        verdicts.insert(1, _verdict("every key was decided", findings.undecided))
        return Result.of(self, verdicts, rows, findings)


def _verdict(name: str, found: list[str], more: str = "") -> Verdict:
    return Verdict(name, not found, tuple(found), more)


def scratch_folder(base: Path, seed: int) -> Path:
    """Return a folder for the files of a run."""
    return base / f"soak-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{seed}"
