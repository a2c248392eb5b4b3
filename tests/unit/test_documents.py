"""What the documents say of the code, and the code of the documents, is there."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
CITING = ("*.py", "*.fbs", "*.toml", "*.yml", "Makefile", "Dockerfile")

CITATION = re.compile(r"docs/([\w/-]+)\.md((?:(?:,? and |, ?| to | ?[–-] ?| )\d+(?:\.\d+)*)*)")
HEADING = re.compile(r"^## (\d+|Appendix [A-Z])\.", re.MULTILINE)
PARAGRAPH = re.compile(r"\((\d+(?:\.\d+)+(?:, \d+(?:\.\d+)+)*)\)")


def sections(page: Path) -> set[str]:
    """Numbers that have a heading, or stand in parentheses inside the section they belong to."""
    text = page.read_text()
    found: set[str] = set()
    heads = list(HEADING.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    for head, end in zip(heads, ends, strict=False):
        found.add(head[1])
        body = text[head.end() : end]
        numbers = {number for group in PARAGRAPH.findall(body) for number in group.split(", ")}
        found |= {number for number in numbers if number.startswith(f"{head[1]}.")}
    return found


def citations() -> Iterator[tuple[str, str, str]]:
    """File, document and number (or nothing) of every citation in the code."""
    files = [file for folder in ("shared", "services", "tests", "schemas") for file in (ROOT / folder).rglob("*.*")]
    for file in [*files, *ROOT.glob("*")]:
        if not file.is_file() or not any(file.match(pattern) for pattern in CITING):
            continue
        text = re.sub(r"\s*\n\s*(?:#:? |// )?", " ", file.read_text())
        for document, numbers in CITATION.findall(text):
            for number in re.findall(r"\d+(?:\.\d+)*", numbers) or [""]:
                yield str(file.relative_to(ROOT)), document, number


def test_every_citation_has_a_home() -> None:
    found = list(citations())
    assert len(found) > 200, "the citations are not recognised any more"
    known = {document: sections(DOCS / f"{document}.md") for document in {document for _, document, _ in found}}
    known["style"] = {str(number) for number in range(1, 13)}
    homeless = [each for each in found if each[2] and each[2] not in known[each[1]]]
    assert homeless == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
    for target in re.findall(r"docs/[\w/-]+\.md", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program.count("file:///tmp/shale/") == 1
    program = program.replace("file:///tmp/shale/", f"file://{tmp_path}/")
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT / "shared")
    assert ended.stdout == "b'two teapots'\nb'order/1' b'two teapots' 1\n"
    assert ended.stderr == ""
