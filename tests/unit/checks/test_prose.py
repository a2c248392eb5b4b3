"""The check of prose: which words and lines it finds, and where it looks."""

from collections import Counter

import pytest

from tests.checks.prose import check_page, check_python, over_limit, package


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Whoever deletes logs this.", ["Whoever"]),
        ("nobody and somebody", ["nobody", "somebody"]),
        ("the row behind the last one", ["behind"]),
        ("a service behind a proxy", []),
        ("a service behind an HTTP load balancer", []),
        ("an id behind the boundary", []),
        ("a reader that lags behind", []),
        ("ObjectVersionBehindBoundary and is_behind_limit", []),
    ],
)
def test_forbidden_words_of_a_page(text: str, words: list[str]) -> None:
    found = [each.text.split("'")[1] for each in check_page("page.md", text)]
    assert found == words


def test_long_lines_of_a_page() -> None:
    found = list(check_page("page.md", f"{'x' * 100}\n{'x' * 101}"))
    assert [(each.line, each.rule) for each in found] == [(2, "long line")]


def test_python_is_checked_in_docstrings_comments_and_strings_only() -> None:
    program = f'"""Nobody\n\nanybody\n"""\nbehind = 1  # somebody\nmessage = f"{{x}} whoever"\nx = \'{"y" * 200}\'\n'
    found = [(each.line, each.text.split("'")[1]) for each in check_python("a.py", program)]
    assert found == [(1, "Nobody"), (3, "anybody"), (5, "somebody"), (6, "whoever")]


def test_a_package_without_a_limit_must_have_none() -> None:
    counts = Counter({("docs", "word"): 2, ("shared/shale/gc", "word"): 1})
    assert over_limit(counts, {"docs: word": 2}) == ["shared/shale/gc: 1 x word, at most 0"]


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("README.md", "."),
        ("docs/how-to/s3.md", "docs/how-to"),
        ("shared/shale/engine/write/pipeline.py", "shared/shale"),
        ("services/shale_gc/app.py", "services/shale_gc"),
        ("tests/unit/gc/test_plan.py", "tests/unit"),
    ],
)
def test_the_folder_that_a_file_counts_for(file: str, folder: str) -> None:
    assert package(file) == folder
