"""``python -m tests.soak``: run all daemons under load and faults, and judge what clients saw."""

import argparse
import random
import shutil
import signal
import sys
from pathlib import Path

from tests.paths import REPOSITORY
from tests.soak.plan.faults import KINDS
from tests.soak.plan.options import MEMORY_LIMIT_BYTES, Options, names_in
from tests.soak.report.html import render
from tests.soak.run.soak import Soak, say, scratch_folder

SMALL_PAUSE_S = (1.0, 2.5)


def parse(words: list[str] | None = None) -> tuple[Options, bool]:
    """Return the options, and whether the files of a good run are kept."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, help="how long the load runs")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument("--seed", type=int, help="draws faults and operations; default: a new one")
    parser.add_argument("--faults", help=f"comma-separated: all, none, {', '.join(KINDS)}")
    parser.add_argument("--previous", help="the commit of the other version; default: the newest tag, or HEAD~50")
    parser.add_argument(
        "--memory-limit", type=int, default=MEMORY_LIMIT_BYTES >> 20, metavar="MIB", help="of each daemon"
    )
    parser.add_argument(
        "--memory-groups",
        action="store_true",
        help="the kernel enforces that limit by control groups, which needs root",
    )
    parser.add_argument("--report", type=Path, help="the HTML file; a JSON file is written beside it")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".shale" / "soak", help="for logs and histories")
    parser.add_argument("--small", action="store_true", help="fewer processes, one address, no need to be root")
    parser.add_argument("--keep", action="store_true", help="keep histories and logs of a run that passes, too")
    chosen = parser.parse_args(words)
    seconds = (chosen.hours or 0) * 3600 + (chosen.minutes or 0) * 60
    if seconds <= 0:
        parser.error("--hours or --minutes says how long the load runs")
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**6)
    folder = scratch_folder(chosen.folder.resolve(), seed)
    options = Options(
        seconds=seconds,
        seed=seed,
        folder=folder,
        report=(chosen.report or folder.with_suffix(".html")).resolve(),
        faults=names_in(chosen.faults),
        previous=chosen.previous,
        memory_limit_bytes=chosen.memory_limit << 20,
        has_memory_groups=chosen.memory_groups,
        is_small=chosen.small,
        **({"pause_s": SMALL_PAUSE_S} if chosen.small else {}),
    )
    return options, chosen.keep


def main() -> int:
    """Run, write the report, and return 1 if anything was found."""
    options, keeps = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    result = Soak(options).run()
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(render(result))
    result.write_json(options.report.with_suffix(".json"))
    for verdict in result.verdicts:
        say(
            f"{'pass' if verdict.is_good else 'FAIL'}  {verdict.name}" + (f"  ({verdict.more})" if verdict.more else "")
        )
        for text in verdict.found[:5]:
            say(f"      {text[:300]}")
    say(f"report: {options.report}")
    if result.is_good and not keeps:
        shutil.rmtree(options.folder)
    else:
        say(f"files: {options.folder}")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
