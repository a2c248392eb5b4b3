"""Renders the charts with ``helm``."""

import subprocess
from functools import cache
from typing import Any, TypeAlias

import yaml

from tests.external_tools import require_tool
from tests.paths import REPOSITORY

CHART = REPOSITORY / "helm" / "shale"
MIXIN = REPOSITORY / "helm" / "shale-mixin"
VALUES = {file.stem.removesuffix("-values"): file for file in sorted((CHART / "ci").glob("*-values.yaml"))}
MINIMAL = ("--set", "database.url=s3://bucket/orders")
FULL = ("-f", str(VALUES["full"]))
ROLES = ("writer", "reader", "compactor", "worker", "gc")
KINDS = (
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
    "gateway.networking.k8s.io/v1/HTTPRoute",
    "keda.sh/v1alpha1/ScaledObject",
)

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Dashboards are large texts, for which the loader in C takes a tenth of the time."""

Manifest: TypeAlias = dict[str, Any]
Objects: TypeAlias = dict[tuple[str, str], Manifest]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm in the folder of the chart ``shale``."""
    command = [require_tool("helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHART)


@cache
def _template(release: str, chart: str, arguments: tuple[str, ...]) -> list[Manifest]:
    kinds = [word for kind in KINDS for word in ("--api-versions", kind)]
    ended = helm("template", release, chart, "--kube-version", "1.31", *kinds, *arguments)
    assert ended.returncode == 0, ended.stderr
    return [each for each in yaml.load_all(ended.stdout, _LOADER) if each]


def manifests(*arguments: str, release: str = "r", chart: str = ".") -> list[Manifest]:
    """Return every object of a release, in a cluster that knows all kinds; tests share the objects."""
    return _template(release, chart, arguments)


def render(*arguments: str) -> Objects:
    """Return every object of the release ``r`` by kind and name without the release name."""
    return {
        (each["kind"], each["metadata"]["name"].removeprefix("r-shale").removeprefix("-")): each
        for each in manifests(*arguments)
    }


def of_kind(objects: Objects, kind: str) -> dict[str, Manifest]:
    """Return the objects of a kind by name."""
    return {name: each for (found, name), each in objects.items() if found == kind}


def pod_templates(objects: Objects) -> dict[str, Manifest]:
    """Return the pod template of every Deployment and CronJob by its name."""
    jobs = {name: each["spec"]["jobTemplate"]["spec"]["template"] for name, each in of_kind(objects, "CronJob").items()}
    return {name: each["spec"]["template"] for name, each in of_kind(objects, "Deployment").items()} | jobs


def container(template: Manifest) -> Manifest:
    """Return the container of the daemon, which is the first one."""
    found: Manifest = template["spec"]["containers"][0]
    return found


def refusal(*arguments: str) -> str:
    """Return what helm says about values that it refuses."""
    ended = helm("template", "r", ".", "--kube-version", "1.31", *arguments)
    assert ended.returncode != 0
    return ended.stderr
