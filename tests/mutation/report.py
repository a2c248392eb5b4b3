"""The report of a mutation run: the score of each package, and mutants that survived without an explanation."""

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutation.selection import SURVIVED
from tests.paths import REPOSITORY

EXPLAINED = REPOSITORY / "tests" / "mutation" / "explained.toml"
_KILLED = ("killed", "timeout")


def judge(folder: Path, packages: Sequence[str], *, score_min: float) -> int:
    """Print the report; return 0 if each score is high enough and every survivor is explained."""
    record = folder / "results.jsonl"
    if not record.exists() or not record.stat().st_size:
        print(f"{record}: no results: run `make mutation-run` first, with packages, and minutes for some mutants")
        return 1
    results = {record["key"]: record for record in map(json.loads, record.read_text().splitlines())}
    explained: dict[str, str] = tomllib.loads(EXPLAINED.read_text())["mutants"] if EXPLAINED.exists() else {}
    is_good = True
    for package, outcomes in _by_package(results.values(), packages).items():
        score = score_of(outcomes)
        is_good &= score >= score_min
        print(f"{package}: {score:.1%}  {dict(sorted(outcomes.items()))}")
    for record in sorted(results.values(), key=lambda each: str(each["place"])):
        if record["outcome"] in SURVIVED and record["key"] not in explained:
            is_good = False
            more = "" if record["complete"] else ", more tests run this line"
            print(f"{record['outcome']} ({record['tests']} tests{more})  {record['place']}  {record['key']}")
    for key in explained:
        if (known := results.get(key)) is not None and known["outcome"] in _KILLED:
            is_good = False
            print(f"explained, but killed: {key}")
    return 0 if is_good else 1


def score_of(outcomes: Mapping[str, int]) -> float:
    """Return the share of killed mutants among those that could be applied."""
    applied = sum(count for outcome, count in outcomes.items() if outcome != "skipped")
    return sum(outcomes.get(each, 0) for each in _KILLED) / applied if applied else 1.0


def _by_package(records: Iterable[Mapping[str, Any]], packages: Sequence[str]) -> dict[str, Counter[str]]:
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        for package in packages:
            if record["key"].startswith((f"{package}.", f"{package}:")):
                counted[package][record["outcome"]] += 1
    return dict(counted)
