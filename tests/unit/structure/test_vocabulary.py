"""Replaced names are not used again.  (``tests/checks/prose.py`` looks for forbidden words of prose.)"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.unit.structure import ratchet

ROOTS = ("shared", "services", "tests", "docs", "deploy", "helm", "schemas")
TOP = ("README.md", "CONTRIBUTING.md", "Makefile", "Dockerfile", "docker-compose.yml", "pyproject.toml")
SUFFIXES = {".py", ".md", ".yml", ".yaml", ".toml", ".json", ".sh", ".fbs", ".tpl", ".txt"}
NOT_OURS = ("/fixtures/", "/_generated/", "tests/unit/structure/")

OLD_NAMES = frozenset(Path(__file__).with_name("old_names.txt").read_text().split())

_WORD = re.compile(r"\w+")


@cache
def _texts() -> dict[str, str]:
    paths = [path for root in ROOTS for path in (REPOSITORY / root).rglob("*") if path.suffix in SUFFIXES]
    paths += [REPOSITORY / name for name in TOP if (REPOSITORY / name).exists()]
    names = {path: path.relative_to(REPOSITORY).as_posix() for path in paths}
    return {name: path.read_text("utf-8") for path, name in names.items() if not any(part in name for part in NOT_OURS)}


def files_with_old_names() -> dict[str, int]:
    """Count the uses of names that were replaced."""
    counts = {name: sum(word in OLD_NAMES for word in _WORD.findall(text)) for name, text in _texts().items()}
    return {name: count for name, count in counts.items() if count}


OLD_PARTS = frozenset(Path(__file__).with_name("old_parts.txt").read_text().split())
"""Words that no name may contain: its parts are separated by ``_`` or begin with a capital letter."""
PROSE = frozenset(
    {
        *("beginning", "face", "faces", "healed", "hurry", "lift", "lifted", "living", "meant"),
        *("moment", "moments", "neighbour", "neighbours", "nowhere"),
    }
)
"""Ordinary English words: on pages, in comments and in strings they may stand alone, in names they may not."""
PARTS_IN = ("shared/", "services/", "docs/", "deploy/", "helm/", "schemas/", *TOP)
ALLOWED_PARTS = {
    "deploy/observability/": frozenset({"fleet"}),  # the dashboard of all databases
    "helm/shale/dashboards/": frozenset({"fleet"}),
    "helm/shale-mixin/dashboards/": frozenset({"fleet"}),
    "shared/shale/testing/": frozenset({"heal", "healed"}),  # Jepsen's word for the end of all faults
    "shared/shale/kernels/": frozenset({"grave", "graves"}),  # kernels: renamed with the next build
}

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@cache
def parts_of(name: str) -> frozenset[str]:
    """Split a name at ``_`` and before capital letters; return its parts in lower case."""
    return frozenset(part.lower() for part in _PART.findall(name))


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text; ordinary English that stands alone is left out."""
    return (word for word in _WORD.findall(text) if word.lower() not in PROSE)


def names_of(path: str, text: str) -> Iterator[str]:
    """Yield the names of a file: all names of Python code, and the words of everything else."""
    if not path.endswith(".py"):
        yield from words_of(text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.string
        else:
            yield from words_of(token.string)


def files_with_old_parts() -> dict[str, int]:
    """Count the names that contain a word which was replaced."""
    counts = {}
    for path, text in _texts().items():
        if path.startswith(PARTS_IN):
            allowed = frozenset().union(*(parts for root, parts in ALLOWED_PARTS.items() if path.startswith(root)))
            old = OLD_PARTS - allowed
            # The tokenizer is slow.  A file without such a word, which are most, needs none.
            if any(parts_of(word) & old for word in set(_WORD.findall(text))):
                counts[path] = sum(bool(parts_of(name) & old) for name in names_of(path, text))
    return {path: count for path, count in counts.items() if count}


RULES = {"old names": files_with_old_names, "old parts": files_with_old_parts}


def test_no_old_name_is_used() -> None:
    ratchet.check("old names", files_with_old_names())


def test_no_name_contains_an_old_word() -> None:
    ratchet.check("old parts", files_with_old_parts())


@pytest.mark.parametrize("name", ["_hurry_wal", "ViewKeeper", "PENDING_GRAVES", "HTTPFace", "moment_ms"])
def test_old_words_are_found_in_all_spellings(name: str) -> None:
    assert parts_of(name) & OLD_PARTS


@pytest.mark.parametrize("name", ["interface", "surface_area", "ViewProvider", "warehouse", "momentum"])
def test_a_part_is_a_whole_word(name: str) -> None:
    assert not parts_of(name) & OLD_PARTS


def test_ordinary_words_are_found_in_code_only() -> None:
    assert [name for name in names_of("a.py", "moment = 1  # at any moment") if parts_of(name) & OLD_PARTS] == [
        "moment"
    ]
    assert not [name for name in names_of("a.md", "At this moment") if parts_of(name) & OLD_PARTS]
