"""Runbooks lead forward: steps, mitigations and pods that a reader is sent to exist when they are needed."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.unit.docs.runbook_pages import ALERTS, PAGES, RUNBOOKS, Kubectl, kubectl_lines

STEP = re.compile(r"(?P<before>(?:\S+ ){0,2})\bsteps? (?P<number>\d+)")
NO_JUMP = re.compile(r"\b(of|from|back to) $")
"""What names a step without sending the reader there in silence."""
OUTCOME = re.compile(
    r"(?P<codes>\b\d{1,3}(?:(?:, | or )\d{1,3})*)(?: with `OOMKilled`)?: [^.]*mitigation (?P<number>\d+)"
)
NO_REPLICAS = re.compile(r"0 replicas: mitigation (\d+)")
NEEDS_KEYS = {"kv", "verify"}
"""Commands that read rows: with encryption they need the keys, which the gc has not."""
WITHOUT_EPOCH = ("SlateDBGCDown", "SlateDBReaderDown")
"""Pages of processes that no other one can fence."""


def name_of(page: Path) -> str:
    return page.stem


def section(text: str, heading: str) -> str:
    """Return a section without its commands, in one line for each step."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "")
    return re.sub(r"```.*?```", "", found, flags=re.DOTALL)


def steps(text: str, heading: str) -> dict[int, str]:
    body = section(text, heading)
    starts = [match.start() for match in re.finditer(r"^\d+\. ", body, re.MULTILINE)]
    parts = (" ".join(body[start:end].split()) for start, end in pairwise([*starts, len(body)]))
    return {int(each.partition(".")[0]): each for each in parts}


def jumps_back(text: str) -> Iterator[str]:
    """Yield the references of diagnosis steps to themselves or to earlier ones."""
    for heading in ("Diagnosis", "Before"):
        for number, step in steps(text, heading).items():
            for match in STEP.finditer(step):
                if int(match["number"]) <= number and not NO_JUMP.search(match["before"]):
                    yield f"step {number}: {match[0]}"


def unfit_mitigations(text: str) -> Iterator[str]:
    """Yield the references of diagnosis steps to mitigations that are for other exit codes."""
    mitigations = steps(text, "Mitigation")
    for step in steps(text, "Diagnosis").values():
        for outcome in OUTCOME.finditer(step):
            title = mitigations[int(outcome["number"])].partition(" - Effect")[0]
            names_codes = title.partition(". ")[2].startswith("Exit code")
            missing = set(re.findall(r"\d+", outcome["codes"])) - set(re.findall(r"\d+", title))
            if names_codes and missing:
                yield f"{outcome[0]} is not in: {title}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_step_leads_forward_or_says_that_it_leads_back(page: Path) -> None:
    assert list(jumps_back(page.read_text("utf-8"))) == []


@pytest.mark.parametrize("page", ALERTS, ids=name_of)
def test_a_mitigation_is_for_the_exit_codes_that_lead_to_it(page: Path) -> None:
    assert list(unfit_mitigations(page.read_text("utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_deployment_without_replicas_is_started(page: Path) -> None:
    text = page.read_text("utf-8")
    _, _, mitigations = text.partition("## Mitigation")
    blocks = re.split(r"^(?=\d+\. )", mitigations, flags=re.MULTILINE)[1:]
    for number in NO_REPLICAS.findall(" ".join(text.split())):
        assert re.search(r"kubectl .* scale .* --replicas=[1-9]", blocks[int(number) - 1]), number


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_runs_in_a_pod_that_the_page_has_stopped(page: Path) -> None:
    stopped: set[str] = set()
    for line in kubectl_lines(page):
        names = {name for _, name in line.objects}
        if line.arguments[0] == "scale":
            stopped = stopped | names if line.options["--replicas"] == ["0"] else stopped - names
        if line.arguments[0] == "exec":
            assert not stopped & names, line.inner


def runs_without_keys(line: Kubectl) -> bool:
    return line.arguments[0] == "exec" and any(name.endswith("-gc") for _, name in line.objects)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_reads_rows_in_the_pod_of_the_gc(page: Path) -> None:
    found = [" ".join(line.inner) for line in kubectl_lines(page) if runs_without_keys(line)]
    assert [line for line in found if line.split()[1] in NEEDS_KEYS] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in WITHOUT_EPOCH], ids=name_of)
def test_what_has_no_epoch_is_not_fenced(page: Path) -> None:
    assert re.findall(r"\b80\b|fenced|took over", page.read_text("utf-8").partition("## Never")[0]) == []


@pytest.mark.parametrize("page", ALERTS, ids=name_of)
def test_a_reference_to_exit_codes_leads_to_a_step_that_has_them(page: Path) -> None:
    found = steps(page.read_text("utf-8"), "Diagnosis")
    for step in found.values():
        for number in re.findall(r"`shale_exit_code`[^.]*?\bstep (\d+)", step):
            assert re.search(r"\b70\b", found[int(number)]), number


LOST_BOUNDARY = [
    RUNBOOKS / "SlateDBProtocolPanic.md",
    RUNBOOKS / "SlateDBBoundaryAdvanceFailing.md",
    REPOSITORY / "docs/how-to/disaster-recovery.md",
]


@pytest.mark.parametrize("page", LOST_BOUNDARY, ids=name_of)
def test_the_cure_of_a_lost_boundary_is_the_same_on_every_page(page: Path) -> None:
    text = " ".join(page.read_text("utf-8").split())
    assert re.search(r"[Ss]top all processes of the database.{0,80}`shale verify`.{0,60}[Ss]tart all", text)
    assert "the gc creates the file again when it next deletes versions" in text.replace("The gc", "the gc")
    assert "missing_boundary" not in text


# --- the checks themselves ------------------------------------------------------------------------

PAGE = """
## Diagnosis

1. First?

   Bad: look at the events of step 1. {jump}

## Mitigation

1. Exit code 137: more memory.

   - Effect: it runs.
"""


@pytest.mark.parametrize(("jump", "is_found"), [("Go to step 1.", True), ("Go back to step 1.", False)])
def test_a_step_that_leads_to_itself_is_found(jump: str, is_found: bool) -> None:
    assert bool(list(jumps_back(PAGE.format(jump=jump)))) is is_found


@pytest.mark.parametrize(
    ("outcome", "is_found"), [("69 or 75: no store: mitigation 1.", True), ("137: mitigation 1.", False)]
)
def test_a_mitigation_for_another_exit_code_is_found(outcome: str, is_found: bool) -> None:
    assert bool(list(unfit_mitigations(PAGE.format(jump=outcome)))) is is_found
