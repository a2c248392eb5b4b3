"""Find words and lines that the style guide forbids: ``python -m tests.checks.prose [--list] [--write-limits]``.

The check reads Markdown pages and the docstrings, comments and string literals of Python files. It counts
two things per package: forbidden words, and lines of pages that are longer than 100 characters. Each count
has a limit in ``prose_limits.json``; a package without a limit must have none. Limits only fall.
"""

import argparse
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = Path(__file__).with_name("prose_limits.json")
PAGE_WIDTH = 100

FORBIDDEN = re.compile(r"\b(whoever|somebody|nobody|anybody|everybody|everyone|give or take|behind)\b", re.IGNORECASE)
PLACES = re.compile(
    r"\bbehind (?:a |an |the )?(?:reverse |HTTP |TLS )*"
    r"(?:proxy|load balancer|firewall|ingress|gateway|boundary|flag)\b"
    r"|\b(?:lag\w*|fall\w*|fell|far|bytes|seconds|versions?) behind\b|\bbehind by\b|behind boundary",
    re.IGNORECASE,
)
"""Uses of "behind" as a place or a distance, not as "after"."""

TEXT_TOKENS = {tokenize.STRING, tokenize.COMMENT} | (
    {tokenize.FSTRING_MIDDLE} if hasattr(tokenize, "FSTRING_MIDDLE") else set()
)
SKIPPED = ("tests/checks/", "tests/unit/checks/", "shared/shale/_generated/")
"""The checks and their tests quote the forbidden words; generated code is not edited."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One forbidden word or one long line."""

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def forbidden_words(file: str, line: int, text: str) -> Iterator[Finding]:
    """Yield the forbidden words of a text that starts at the given line."""
    for offset, part in enumerate(text.split("\n")):
        allowed = [match.span() for match in PLACES.finditer(part)]
        for match in FORBIDDEN.finditer(part):
            if not any(start <= match.start() < end for start, end in allowed):
                yield Finding(file, line + offset, "word", f"{match[0]!r} in {part.strip()[:90]!r}")


def check_page(file: str, text: str) -> Iterator[Finding]:
    """Check a Markdown page: words and line lengths."""
    yield from forbidden_words(file, 1, text)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > PAGE_WIDTH:
            yield Finding(file, number, "long line", f"{len(line)} characters, at most {PAGE_WIDTH}")


def check_python(file: str, text: str) -> Iterator[Finding]:
    """Check the docstrings, comments and string literals of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in TEXT_TOKENS:
            yield from forbidden_words(file, token.start[0], token.string)


def check_file(file: str, text: str) -> Iterator[Finding]:
    """Check one file by its ending."""
    yield from check_page(file, text) if file.endswith(".md") else check_python(file, text)


def files() -> list[str]:
    """Return the paths of all tracked or new pages and Python files."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [
        file for file in listed if not file.startswith(SKIPPED) and "/fixtures/" not in file and (ROOT / file).is_file()
    ]


def package(file: str) -> str:
    """Return the folder under which a file's findings are counted."""
    parts = Path(file).parts
    if len(parts) == 1:
        return "."
    return "/".join(parts[:-1][:2])


def findings() -> Iterator[Finding]:
    """Check every file of the tree."""
    for file in files():
        yield from check_file(file, (ROOT / file).read_text())


def over_limit(counts: Counter[tuple[str, str]], limits: dict[str, int]) -> list[str]:
    """Return a line for each package and rule that is above its limit."""
    lines = []
    for (folder, rule), count in sorted(counts.items()):
        limit = limits.get(f"{folder}: {rule}", 0)
        if count > limit:
            lines.append(f"{folder}: {count} x {rule}, at most {limit}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print what is above its limit; return 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.prose", description=main.__doc__)
    parser.add_argument("--list", action="store_true", help="print every finding, also within the limits")
    parser.add_argument("--write-limits", action="store_true", help="lower the limits to what is there now")
    parser.add_argument("paths", nargs="*", help="with --list: only files whose path starts with one of these")
    options = parser.parse_args(arguments)
    found = list(findings())
    counts = Counter((package(each.file), each.rule) for each in found)
    limits: dict[str, int] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if options.write_limits:
        now = {f"{folder}: {rule}": count for (folder, rule), count in sorted(counts.items())}
        lowered = {name: min(count, limits.get(name, count)) for name, count in now.items()}
        LIMITS.write_text(json.dumps(lowered, indent=1) + "\n")
        return 0
    if options.list:
        for each in found:
            if not options.paths or each.file.startswith(tuple(options.paths)):
                print(each)
        return 0
    above = over_limit(counts, limits)
    over = {line.partition(":")[0] for line in above}
    for each in found:
        if package(each.file) in over:
            print(each)
    print("\n".join(above) or f"prose: {len(found)} findings, all within their limits")
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
