"""Code that the documents name exists, and documents that the code names exist."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shale.engine.options import DbOptions
from shale.engine.reader.options import ReaderOptions
from shale.gc.options import TaskOptions
from shale.service.config.config_sources import all_settings
from shale.service.exit_codes import ExitCode
from shale.telemetry.catalogue import CATALOGUE
from shale.telemetry.events import Event
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.settings import CompactorSettings
from shale_compactor.worker.options import WorkerOptions
from shale_gc.settings import GcSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings
from tests.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = sorted([REPOSITORY / "README.md", *DOCS.rglob("*.md")])
CITING = ("*.py", "*.fbs", "*.toml", "*.yml", "Makefile", "Dockerfile")

CITATION = re.compile(r"docs/([\w/-]+)\.md((?:(?:,? and |, ?| to | ?[–-] ?| )\d+(?:\.\d+)*)*)")
HEADING = re.compile(r"^## (\d+|Appendix [A-Z])\.", re.MULTILINE)
PARAGRAPH = re.compile(r"\((\d+(?:\.\d+)+(?:, \d+(?:\.\d+)+)*)\)")


def sections(page: Path) -> set[str]:
    """Return the numbers that have a heading, or are in parentheses inside their section."""
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
    """Return file, document and number (or nothing) of every citation in the code."""
    files = [
        file for folder in ("shared", "services", "tests", "schemas") for file in (REPOSITORY / folder).rglob("*.*")
    ]
    for file in [*files, *REPOSITORY.glob("*")]:
        if not file.is_file() or not any(file.match(pattern) for pattern in CITING):
            continue
        text = re.sub(r"\s*\n\s*(?:#:? |// )?", " ", file.read_text())
        for document, numbers in CITATION.findall(text):
            for number in re.findall(r"\d+(?:\.\d+)*", numbers) or [""]:
                yield str(file.relative_to(REPOSITORY)), document, number


def test_every_citation_has_a_home() -> None:
    found = list(citations())
    assert len(found) > 200, "the citations are not recognised any more"
    known = {document: sections(DOCS / f"{document}.md") for document in {document for _, document, _ in found}}
    known["reference/style"] = {str(number) for number in range(1, 13)}
    homeless = [each for each in found if each[2] and each[2] not in known[each[1]]]
    assert homeless == []


def test_every_trace_is_told() -> None:
    text = (DOCS / "reference/protocol.md").read_text()
    told = set(re.findall(r"^- (T\d\.[a-z]):", text, re.MULTILINE))
    told |= set(re.findall(r"\b(I\d+)\s", text.partition("(14.6)")[2]))
    labels = re.compile(r"\b(T\d\.[a-z])\b|\"\"\"(I\d+)\b")
    cited = {a or b for file in (REPOSITORY / "tests").rglob("*.py") for a, b in labels.findall(file.read_text())}
    assert len(cited) > 20
    assert cited <= told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
    for target in re.findall(r"docs/[\w/-]+\.md", text):
        assert (REPOSITORY / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE))
    assert named <= targets


def test_metrics_exist_that_operators_are_told_to_watch() -> None:
    named = set(re.findall(r"`((?:slatedb|shale)_[a-z0-9_]+)`", (DOCS / "how-to/monitor.md").read_text()))
    assert len(named) > 5
    assert named <= set(CATALOGUE)


def test_exit_codes_are_those_of_the_code() -> None:
    (table,) = re.findall(r"(\| code .*?)\n\Z", (DOCS / "reference/exit-codes.md").read_text(), re.DOTALL)
    told = [int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in codes.split(",")]
    assert told == sorted(ExitCode)


def test_settings_exist_that_operators_are_told_of() -> None:
    known = {
        ".".join(names)
        for model in (WriterSettings, CompactorSettings, GcSettings, ReaderSettings)
        for names in all_settings(model)
    }
    sections = {name.partition(".")[0] for name in known if "." in name}
    told = "".join(page.read_text() for page in sorted(DOCS.glob("how-to/[cmor]*.md")))
    named = set(re.findall(r"`([a-z_]+\.[a-z_.]+)`", told))
    settings = {name for name in named if name.partition(".")[0] in sections} - {event.value for event in Event}
    assert len(settings) > 10
    assert settings <= known


def test_defaults_of_the_protocol_page() -> None:
    text = re.sub(r"\s+", " ", (DOCS / "reference/protocol.md").read_text().partition("## Appendix A.")[2])
    db, reader, gc = DbOptions(), ReaderOptions(), TaskOptions()
    coordinator, worker = CoordinatorOptions(), WorkerOptions()
    for told in (
        f"flush_interval {db.flush_interval_s * 1000:g} ms",
        f"manifest_poll_interval {db.manifest_poll_interval_s:g} s",
        f"l0_sst_size_bytes {db.l0_sst_size_bytes >> 20} MiB",
        f"l0_max_ssts {db.l0_max_ssts} ",
        f"max_unflushed_bytes {db.max_unflushed_bytes >> 30} GiB",
        f"compactor poll {coordinator.poll_interval_s:g} s",
        f"heartbeat {worker.heartbeat_interval_s:g} s, timeout {coordinator.worker_heartbeat_timeout_s:g} s",
        f"gc interval {gc.interval_s:g} s, min_age {gc.min_age_s:g} s",
        f"reader poll {reader.manifest_poll_interval_s:g} s, lifetime {reader.checkpoint_lifetime_s:g} s",
        f"probe_max_staleness and wal_stall_limit {db.probe_max_staleness_s:g} s",
    ):
        assert told in text


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    assert program.count("file:///tmp/shale/") == 1
    program = program.replace("file:///tmp/shale/", f"file://{tmp_path}/")
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=REPOSITORY / "shared")
    assert ended.stdout == "b'two teapots'\nb'order/1' b'two teapots' 1\n"
    assert ended.stderr == ""
