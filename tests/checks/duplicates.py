"""Find code that is written twice: ``python -m tests.checks.duplicates [--list]``.

A *pair* is two places that share a run of six or more lines of the same shape. The shape of a line is its
tokens with names, strings and numbers folded to one letter each; keywords and operators stay. Imports,
docstrings, comments, blank lines and lines of punctuation alone are passed over. So are declarations: the
fields of a class and the signature of a function say what a value is, and two methods of one port must have
the same signature. A run counts only if it carries enough tokens to mean something, and if its shape stands
in at most eight places: what is more common is an idiom of the language. Several runs between the same two
files count as one pair.

``accepted_duplicates.toml`` lists the pairs that stay, each with a reason, and the limits. A ``[[pair]]`` is two
paths and still counts. A ``[[group]]`` is two globs of paths, for data in the form of code; its pairs do not
count. An entry without a pair is an error: the code is written once now, and the entry goes.
"""

import argparse
import ast
import fnmatch
import io
import keyword
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).with_name("accepted_duplicates.toml")
LINES_MIN = 6
TOKENS_MIN = 30
"""Fewest tokens of a run of six lines; shorter ones are lists of constants."""
PLACES_MAX = 8
PUNCTUATION = frozenset("()[]{},:") | {"->", "..."}
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of code by its shape."""

    number: int
    shape: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two files that share code, and the longest run that they share."""

    first: str
    second: str
    lines: int
    first_start: int
    second_start: int

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted((self.first, self.second)))

    def __str__(self) -> str:
        return f"{self.first}:{self.first_start} ~ {self.second}:{self.second_start} ({self.lines} lines)"


@dataclass(frozen=True, slots=True)
class Report:
    """The pairs that count, with and without a reason, the entries that match none, and the limits."""

    explained: Sequence[Pair]
    unexplained: Sequence[Pair]
    unused: Sequence[str]
    limit: int
    limit_unexplained: int

    @property
    def total(self) -> int:
        return len(self.explained) + len(self.unexplained)

    @property
    def passes(self) -> bool:
        return self.total <= self.limit and len(self.unexplained) <= self.limit_unexplained and not self.unused

    def __str__(self) -> str:
        return (
            f"duplicates: {self.total} pairs (at most {self.limit}), {len(self.explained)} of them with a reason; "
            f"{len(self.unexplained)} without (at most {self.limit_unexplained})"
        )


def _passed_over(tree: ast.Module) -> set[int]:
    """Return the lines of imports, docstrings, signatures and fields of classes."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            skipped.update(range(first, node.body[0].lineno))
        if isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign | ast.Assign)]
            skipped.update(line for each in fields for line in _lines(each))
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            skipped.update(_lines(node))
    return skipped


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _fold(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return token.string if keyword.iskeyword(token.string) else "n"
    if token.type == tokenize.NUMBER:
        return "0"
    return "s" if token.type == tokenize.STRING else token.string


def shapes(text: str) -> list[Line]:
    """Return the lines of a Python file that count, in order."""
    skipped = _passed_over(ast.parse(text))
    by_line: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.start[0] not in skipped:
            by_line[token.start[0]].append(_fold(token))
    return [Line(number, tuple(tokens)) for number, tokens in sorted(by_line.items()) if not set(tokens) <= PUNCTUATION]


def _windows(files: Mapping[str, Sequence[Line]]) -> Iterator[list[tuple[str, int]]]:
    """Yield the places (file, index of its first line) of every window that stands at least twice."""
    places: dict[tuple[tuple[str, ...], ...], list[tuple[str, int]]] = defaultdict(list)
    for file, lines in files.items():
        for start in range(len(lines) - LINES_MIN + 1):
            window = tuple(line.shape for line in lines[start : start + LINES_MIN])
            if sum(map(len, window)) >= TOKENS_MIN:
                places[window].append((file, start))
    yield from (found for found in places.values() if 2 <= len(found) <= PLACES_MAX)


def find_pairs(files: Mapping[str, Sequence[Line]]) -> list[Pair]:
    """Return every pair of files that share a run, in order of their names."""
    starts: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for found in _windows(files):
        for place, (first, one) in enumerate(found):
            for second, two in found[place + 1 :]:
                if first != second or two - one >= LINES_MIN:
                    starts[first, second].add((one, two))
    return sorted(_longest(first, second, files, seeds) for (first, second), seeds in starts.items())


def _longest(first: str, second: str, files: Mapping[str, Sequence[Line]], seeds: set[tuple[int, int]]) -> Pair:
    """Return the longest run of a pair; seeds that follow one another belong to one run."""
    best = (0, 0, 0)
    for one, two in sorted(seeds):
        if (one - 1, two - 1) in seeds:
            continue
        length = 1
        while (one + length, two + length) in seeds:
            length += 1
        best = max(best, (length, -one, -two))
    length, one, two = best
    return Pair(first, second, length + LINES_MIN - 1, files[first][-one].number, files[second][-two].number)


def is_in_group(pair: Pair, groups: Iterable[Mapping[str, str]]) -> bool:
    """Tell whether the globs of a group match a pair, in either order."""
    return any(
        fnmatch.fnmatch(first, group["a"]) and fnmatch.fnmatch(second, group["b"])
        for group in groups
        for first, second in ((pair.first, pair.second), (pair.second, pair.first))
    )


def judge(pairs: Iterable[Pair], settings: Mapping[str, Any]) -> Report:
    """Sort pairs by the entries of the list."""
    reasons = {tuple(sorted((each["a"], each["b"]))): each["reason"] for each in settings.get("pair", [])}
    counted = [pair for pair in pairs if not is_in_group(pair, settings.get("group", []))]
    explained = [pair for pair in counted if reasons.pop(pair.files, None)]
    return Report(
        explained=explained,
        unexplained=[pair for pair in counted if pair not in explained],
        unused=[f"{first} ~ {second}" for first, second in sorted(reasons)],
        limit=settings["limit"],
        limit_unexplained=settings["limit_without_reason"],
    )


def tree() -> dict[str, list[Line]]:
    """Read every Python file of the tree but generated code."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    names = [name for name in sorted(listed) if "/_generated/" not in name and (ROOT / name).is_file()]
    return {name: shapes((ROOT / name).read_text()) for name in names}


def main(arguments: list[str] | None = None) -> int:
    """Count the pairs; return 1 if there are more than a limit, or if an entry of the list matches none."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.duplicates", description=main.__doc__)
    parser.add_argument("--list", action="store_true", help="print every pair without a reason")
    parser.add_argument("--all", action="store_true", help="with --list: pairs with a reason, too")
    parser.add_argument("paths", nargs="*", help="with --list: only pairs with a file below one of these")
    options = parser.parse_args(arguments)
    report = judge(find_pairs(tree()), tomllib.loads(ACCEPTED.read_text()))
    if options.list or not report.passes:
        below = tuple(options.paths) or ("",)
        shown = [*report.unexplained, *(report.explained if options.all else [])]
        for pair in sorted(shown, key=lambda each: -each.lines):
            if pair.first.startswith(below) or pair.second.startswith(below):
                print(pair)
    for entry in report.unused:
        print(f"no longer a pair, remove the entry: {entry}")
    print(report)
    return int(not report.passes)


if __name__ == "__main__":
    sys.exit(main())
