"""The runbooks, their command lines, and the objects of the chart for their example release."""

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.code_blocks import blocks, commands
from tests.external_tools import require_tool
from tests.paths import REPOSITORY

CHART = REPOSITORY / "helm" / "shale"
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
INDEX = RUNBOOKS / "index.md"
PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page != INDEX)
ALERTS = [page for page in PAGES if page.stem[0] == "S"]
NAMESPACE = "orders"
RELEASE = "orders"
KINDS = {
    "deploy": "Deployment", "deployment": "Deployment", "svc": "Service", "service": "Service", "secret": "Secret",
    "serviceaccount": "ServiceAccount", "configmap": "ConfigMap", "pods": "Pod", "pod": "Pod", "nodes": "Node",
    "node": "Node", "events": "Event", "cronjob": "CronJob", "cronjobs": "CronJob", "jobs": "Job",
}  # fmt: skip
VALUE_OPTIONS = {
    "-n", "-l", "-o", "-c", "--tail", "--replicas", "--field-selector", "--grace-period", "--container",
}  # fmt: skip


def shell_lines(page: Path) -> list[str]:
    return [line for block in blocks(page) if block.language == "sh" for line in commands(block.text)]


@cache
def example() -> dict[str, Any]:
    """Return the values of the example release, from the index page."""
    (block,) = [each for each in blocks(INDEX) if each.language == "yaml"]
    values: dict[str, Any] = yaml.safe_load(block.text)
    return values


def render(folder: Path, *arguments: str) -> list[Any]:
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(example()))
    command = [
        require_tool("helm"),
        "template",
        RELEASE,
        str(CHART),
        "-n",
        NAMESPACE,
        "--kube-version",
        "1.31",
        "-f",
        str(values),
    ]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [each for each in yaml.safe_load_all(ended.stdout) if each]


def pods_of(objects: list[Any]) -> dict[str, Any]:
    """Return the pod template of each deployment."""
    return {each["metadata"]["name"]: each["spec"]["template"] for each in objects if each["kind"] == "Deployment"}


def labels_of_pods(objects: list[Any]) -> list[dict[str, str]]:
    """Return the labels of the pods of deployments and of backups."""
    jobs = [each["spec"]["jobTemplate"]["spec"]["template"] for each in objects if each["kind"] == "CronJob"]
    return [pod["metadata"]["labels"] for pod in (*pods_of(objects).values(), *jobs)]


def secrets_of(objects: list[Any]) -> dict[str, set[str]]:
    """Return the keys of each secret that pods mount."""
    found: dict[str, set[str]] = {}
    for pod in pods_of(objects).values():
        for volume in pod["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                keys = {item["key"] for item in source["secret"]["items"]}
                found.setdefault(source["secret"]["name"], set()).update(keys)
    return found


def names_of(objects: list[Any]) -> set[str]:
    return {each["metadata"]["name"] for each in objects} | set(secrets_of(objects))


class Kubectl:
    """The parts of a command line of ``kubectl``."""

    def __init__(self, line: str) -> None:
        words, _, inner = (re.split(r"[|>)]", line)[0]).partition(" -- ")
        self.inner = shlex.split(line.partition(" -- ")[2].partition(" > ")[0]) if inner else []
        self.options: dict[str, list[str]] = {}
        self.arguments: list[str] = []
        waiting = ""
        for word in shlex.split(words)[1:]:
            if waiting:
                self.options.setdefault(waiting, []).append(word)
                waiting = ""
            elif word in VALUE_OPTIONS and "=" not in word:
                waiting = word
            elif word.startswith("-"):
                name, _, value = word.partition("=")
                self.options.setdefault(name, []).append(value)
            else:
                self.arguments.append(word)

    @property
    def objects(self) -> list[tuple[str, str]]:
        """Kinds and names; the name is empty where the command is about all of a kind."""
        verb, *rest = self.arguments
        if verb == "set":
            verb, *rest = rest
        if verb == "rollout":
            _, *rest = rest
        parts = (word.partition("/") for word in rest if "/" in word and "=" not in word)
        named = [(kind, name) for kind, _, name in parts]
        if not named and verb in ("get", "describe", "scale", "delete") and rest and rest[0] in KINDS:
            named = [(rest[0], rest[1] if len(rest) > 1 else "")]
        return [(KINDS[kind], name) for kind, name in named]


def kubectl_lines(page: Path) -> list[Kubectl]:
    return [Kubectl(part) for line in shell_lines(page) for part in re.findall(r"(?<![\w-])kubectl .*", line)]
