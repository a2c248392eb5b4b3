"""Runbooks name objects of the rendered chart, options of the commands and metrics, and each page stands alone."""

import json
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from shale.service.config.settings import load_settings
from shale.telemetry.catalogue import CATALOGUE
from shale_cli.framework.daemons import DAEMONS, settings_class
from tests.code_blocks import Block, blocks
from tests.external_tools import require_tool
from tests.paths import REPOSITORY
from tests.unit.docs.runbook_pages import (
    ALERTS,
    CHART,
    NAMESPACE,
    PAGES,
    RELEASE,
    Kubectl,
    kubectl_lines,
    labels_of_pods,
    names_of,
    pods_of,
    render,
    secrets_of,
    shell_lines,
)
from tests.unit.docs.test_named_things import is_metric

OF_THE_CLUSTER = {"Pod", "Node", "Event"}
PLACEHOLDERS = {"NODE", "POD", "SECRET"}
FORBIDDEN = re.compile(
    r"\bas for\b|\bsee above\b|\bsee below\b|\bas above\b|\b[Ss]ee \[?(?:SlateDB|Shale)[A-Z]", re.IGNORECASE
)
OURS = re.compile(r"(?<![\w:])((?:db:)?(?:slatedb|shale)_[a-z0-9_:]+)(?:\{([^}]*)\})?")
SCRAPED = {"instance", "job", "namespace", "cluster", "pod", "container", "le", "cronjob", "job_name"}
"""Labels that Prometheus and kube-state-metrics add, and that of buckets."""


def name_of(page: Path) -> str:
    return page.stem


def queries(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "promql"]


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", page.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def numbered(text: str) -> list[str]:
    """Return the numbered steps of a section."""
    starts = [match.start() for match in re.finditer(r"^\d+\. ", text, re.MULTILINE)]
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_stands_alone(page: Path) -> None:
    text = page.read_text("utf-8")
    assert FORBIDDEN.findall(text) == []
    assert f"`-n NAMESPACE` and `{RELEASE}-shale` by `RELEASE-shale`" in " ".join(text.split())
    for section in sections(page).values():
        steps = numbered(section)
        assert [int(each.partition(".")[0]) for each in steps] == list(range(1, len(steps) + 1))
    counted = {heading: len(numbered(section)) for heading, section in sections(page).items()}
    words = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert max(map(int, re.findall(r"\bsteps? (\d+)", words)), default=0) <= max(
        counted.get("Diagnosis", 0), counted.get("Before", 0)
    )
    assert max(map(int, re.findall(r"\bmitigation (\d+)", words)), default=0) <= counted.get("Mitigation", 0)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_step_says_what_to_expect(page: Path) -> None:
    found = sections(page)
    for each in numbered(found.get("Diagnosis", "")):
        assert re.search(r"^   Good: ", each, re.MULTILINE), each
        assert re.search(r"^   Bad: ", each, re.MULTILINE), each
    for each in numbered(found.get("Mitigation", "")):
        assert re.findall(r"^   - (Effect|Risk|Undo): ", each, re.MULTILINE) == ["Effect", "Risk", "Undo"], each


@pytest.mark.parametrize("page", ALERTS, ids=name_of)
def test_a_page_of_an_alert_has_steps_and_says_what_to_collect(page: Path) -> None:
    found = sections(page)
    assert len(numbered(found["Diagnosis"])) >= 2
    assert numbered(found["Mitigation"])
    assert "shale debug bundle" in found["Escalation"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_dead_process_is_looked_for_in_its_pod(page: Path) -> None:
    text = page.read_text("utf-8")
    if re.search(r"\b137\b|OOMKilled|--previous --tail", text):
        assert ".status.containerStatuses[*].lastState.terminated" in text


# --- objects --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return render(tmp_path_factory.mktemp("chart"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_objects_exist_in_the_chart(page: Path, objects: list[Any]) -> None:
    known = {(each["kind"], each["metadata"]["name"]) for each in objects}
    known |= {("Secret", name) for name in secrets_of(objects)}
    pods, ports = pods_of(objects), {}
    for each in objects:
        if each["kind"] == "Service":
            ports[each["metadata"]["name"]] = {str(port["port"]) for port in each["spec"]["ports"]}
    lines = kubectl_lines(page)
    for line in lines:
        of_cluster = {"-A", "cordon", "uncordon", "drain"} & {*line.options, *line.arguments}
        kinds = {kind for kind, _ in line.objects}
        assert of_cluster or kinds == {"Node"} or line.options.get("-n") == [NAMESPACE], line.arguments
        for kind, name in line.objects:
            assert not name or name in PLACEHOLDERS or (kind, name) in known, (kind, name)
            for word in line.arguments:
                if re.fullmatch(r"\w+=registry/shale:TAG", word):
                    assert word.partition("=")[0] in {each["name"] for each in pods[name]["spec"]["containers"]}
                if kind == "Deployment" and re.fullmatch(r"\d+:\d+", word):
                    (container,) = pods[name]["spec"]["containers"]
                    assert int(word.partition(":")[2]) in {each["containerPort"] for each in container["ports"]}
                if kind == "Service" and re.fullmatch(r"\d+:\d+", word):
                    assert word.partition(":")[2] in ports[name]
            if kind == "Secret" and (key := re.search(r"\.data\.(\w+)", str(line.options))):
                assert key[1] in secrets_of(objects)[name]
    # Names outside of commands, in prose and in what a command is about.
    text = re.sub(r"s3://\S+", "", page.read_text("utf-8"))
    named = set(re.findall(rf"(?<![\w@:./-])(?:\w+/)?({RELEASE}-[a-z0-9-]*[a-z0-9])", text)) - {f"{RELEASE}-shale"}
    assert named <= names_of(objects) | {f"{RELEASE}-restored"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_labels_select_pods_of_the_chart(page: Path, objects: list[Any]) -> None:
    labels = labels_of_pods(objects)
    for line in kubectl_lines(page):
        for selector in line.options.get("-l", []):
            wanted = dict(term.split("=") for term in selector.split(","))
            assert any(wanted.items() <= each.items() for each in labels), selector


def upgrades() -> list[tuple[str, str]]:
    """Return every value that a page gives to the chart."""
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        for line in shell_lines(page):
            words = shlex.split(line)
            if words[0] == "helm":
                assert {"rollback", "upgrade", "install", "uninstall", "history", "get"} & set(words), line
                assert words[1:3] == ["-n", NAMESPACE], line
                pairs = (words[at + 1].partition("=") for at, word in enumerate(words) if word == "--set")
                found |= {(name, value) for name, _, value in pairs}
    return sorted(found)


def test_values_that_pages_set_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is in the schema of the chart, and the daemon of its section takes each setting."""
    left = upgrades()
    assert len(left) > 15
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, _ in left:
        head, *tail = name.split(".")
        assert head in known, name
        if head != "settings" and tail[0] not in ("resources", "image"):
            assert tail[0] in known[head], name
    while left:
        now: dict[str, str] = {}
        for name, value in left:
            now.setdefault(name, value)
        left = [(name, value) for name, value in left if now[name] != value]
        now = {name: value for name, value in now.items() if value != "null"}  # it removes what is set elsewhere
        rendered = render(tmp_path, *(word for pair in now.items() for word in ("--set", "=".join(pair))))
        (config,) = [each for each in rendered if each["kind"] == "ConfigMap"]
        file = tmp_path / "config.yaml"
        file.write_text(config["data"]["config.yaml"])
        monkeypatch.setenv("SHALE_CONFIG", str(file))
        monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path / "none"))
        for role in DAEMONS:
            assert load_settings(settings_class(role), []).unknown_env == ()
        sections = yaml.safe_load(file.read_text())
        assert {name.split(".")[1] for name in now if name.startswith("settings.")} <= set(DAEMONS) & set(sections)


def test_services_of_compose_exist() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    for page in PAGES:
        text = " ".join(page.read_text("utf-8").split())
        named = set(re.findall(r"docker compose (?:exec|logs|restart)(?: -T)? (\w+)", text))
        assert named, page.name
        assert named <= set(services)


def test_every_process_finds_its_settings(objects: list[Any]) -> None:
    """A command that ``kubectl exec`` starts has the variables of the container, and with them the database."""
    for pod in pods_of(objects).values():
        (container,) = pod["spec"]["containers"]
        assert {"SHALE_CONFIG", "SHALE_SECRETS_DIR", "SHALE_ADMIN__PORT"} <= {each["name"] for each in container["env"]}
        assert "command" not in container


# --- queries --------------------------------------------------------------------------------------


def labels_of(metric: str) -> set[str]:
    spec = CATALOGUE.get(metric) or CATALOGUE[re.sub("_(bucket|count|sum)$", "", metric)]
    return set(spec.labels) | {"db"} | SCRAPED


def recorded() -> set[str]:
    return {
        rule["record"]
        for file in (REPOSITORY / "deploy" / "observability" / "rules").glob("*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_queries_ask_for_metrics_and_labels_that_exist(page: Path) -> None:
    rules = recorded()
    for block in queries(page):
        for metric, selector in OURS.findall(block.text):
            if metric in rules:
                continue
            assert is_metric(metric), f"{block}: {metric}"
            asked = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
            assert asked <= labels_of(metric), f"{block}: {metric}{{{selector}}}"
        measured = {metric for metric, _ in OURS.findall(block.text)} - rules
        known = SCRAPED.union(*map(labels_of, measured))
        grouped = {
            name for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", block.text) for name in re.split(r",\s*", names)
        }
        assert grouped <= known, str(block)


def test_the_query_language(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": block.text}
        for number, block in enumerate(block for page in PAGES for block in queries(page))
    ]
    assert len(rules) > 150
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    command = [require_tool("promtool"), "check", "rules", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


# --- the checks themselves ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["As for the writer.", "See SlateDBL0Stalled.", "do as above", "See [ShaleHTTPErrors]"]
)
def test_a_phrase_that_sends_the_reader_away_is_found(text: str) -> None:
    assert FORBIDDEN.search(text)


def test_the_parts_of_a_command() -> None:
    line = Kubectl("kubectl -n orders exec deploy/orders-shale-gc -- shale kv scan --prefix a > rows.ndjson")
    assert line.objects == [("Deployment", "orders-shale-gc")]
    assert line.inner == ["shale", "kv", "scan", "--prefix", "a"]
    assert Kubectl("kubectl -n orders get deploy orders-shale-writer -o jsonpath='{.spec}'").objects == [
        ("Deployment", "orders-shale-writer")
    ]
    assert json.dumps(Kubectl("kubectl get pods -A -l a=b").options) == '{"-A": [""], "-l": ["a=b"]}'
