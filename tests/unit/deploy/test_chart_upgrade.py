"""An upgrade in steps, as the pages describe it: each step replaces the pods of one role, and the last one none."""

import re
import shlex
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml

from tests.code_blocks import blocks, commands
from tests.paths import REPOSITORY
from tests.unit.deploy.chart import CHART, manifests
from tests.unit.docs.runbook_pages import NAMESPACE, RELEASE, example

RUNBOOK = REPOSITORY / "docs/runbooks/upgrade-and-downgrade.md"
PAGES = [RUNBOOK, REPOSITORY / "docs/how-to/kubernetes.md", REPOSITORY / "docs/how-to/operate/upgrade.md"]
ORDER = ["reader", "worker", "compactor", "gc", "writer"]
OLD, NEW = "0.1.0", "0.2.0"
TAGS = {"OLD_TAG": OLD, "TAG": NEW, "$OLD": OLD, "$NEW": NEW}


class Upgrades:
    """A release of the example, and what ``helm upgrade`` makes of it."""

    def __init__(self, folder: Path) -> None:
        self.new_chart = folder / "chart"
        copytree(CHART, self.new_chart)
        about = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert about["appVersion"] == OLD
        (self.new_chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "appVersion": NEW, "version": NEW}))
        self.values = folder / "values.yaml"
        self.values.write_text(yaml.safe_dump(example()))
        self.given: list[str] = []
        self.pods = self.render(CHART)

    def render(self, chart: Path) -> dict[str, Any]:
        """Return the pod template of each role."""
        words = [word for pair in self.given for word in ("--set", pair)]
        found = manifests("-n", NAMESPACE, "-f", str(self.values), *words, release=RELEASE, chart=str(chart))
        deployments = [each for each in found if each["kind"] == "Deployment"]
        return {each["metadata"]["name"].rpartition("-")[2]: each["spec"]["template"] for each in deployments}

    def step(self, pairs: list[str]) -> list[str]:
        """Upgrade to the new chart with more values, and return the roles whose pods are replaced."""
        self.given += pairs
        return self.replace(self.render(self.new_chart))

    def replace(self, pods: dict[str, Any]) -> list[str]:
        assert pods.keys() == self.pods.keys()
        changed = [role for role in pods if pods[role] != self.pods[role]]
        self.pods = pods
        return changed

    def tags(self) -> set[str]:
        images = [pod["spec"]["containers"][0]["image"] for pod in self.pods.values()]
        return {image.rpartition(":")[2] for image in images}


def pairs_of(line: str) -> list[str]:
    """Return the values that a command line gives, with the versions of this test."""
    words = shlex.split(line)
    pairs = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--set"]
    return [f"{name}={TAGS.get(value, value)}" for name, _, value in pairs]


def upgrades_of(page: Path, section: str) -> list[list[str]]:
    """Return the values of every ``helm upgrade`` of a section."""
    lines = page.read_text("utf-8").splitlines()
    start = lines.index(f"## {section}") + 1
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("## ")), len(lines))
    found = [line for block in blocks(page) if start < block.line <= end for line in commands(block.text)]
    calls = (pairs_of(line) for line in found if re.match(r"(helm .*)?upgrade ", line))
    return [pairs for pairs in calls if pairs]


@pytest.fixture
def upgrades(tmp_path: Path) -> Upgrades:
    return Upgrades(tmp_path)


def test_an_upgrade_without_steps_replaces_every_pod(upgrades: Upgrades) -> None:
    assert sorted(upgrades.step([])) == sorted(ORDER)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "section"), [(RUNBOOK, "Upgrade"), (PAGES[1], "Upgrade in steps")])
def test_each_step_of_a_page_replaces_the_pods_of_one_role(page: Path, section: str, upgrades: Upgrades) -> None:
    steps = upgrades_of(page, section)
    assert [upgrades.step(pairs) for pairs in steps] == [*([role] for role in ORDER), []]
    assert upgrades.tags() == {NEW}


@pytest.mark.slow
def test_a_downgrade_replaces_the_writer_first(upgrades: Upgrades) -> None:
    original = upgrades.pods
    for pairs in upgrades_of(RUNBOOK, "Upgrade"):
        upgrades.step(pairs)
    assert upgrades.step(upgrades_of(RUNBOOK, "Downgrade")[0]) == ["writer"]
    rollback = upgrades.replace(original)
    assert sorted(rollback) == sorted(set(ORDER) - {"writer"})
    assert upgrades.tags() == {OLD}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_upgrade_to_a_new_chart_takes_its_new_defaults(page: Path) -> None:
    assert "--reset-then-reuse-values" in page.read_text("utf-8")
    assert re.findall(r"helm .*upgrade .*--reuse-values", page.read_text("utf-8").replace("\\\n", " ")) == []
