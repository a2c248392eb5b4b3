"""What the chart renders is valid Kubernetes, for every value file, next to another release, and after an upgrade."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from importlib_resources import as_file, files
from referencing import Registry, Resource

from tests.json_schemas import jsonschema

from .chart import KINDS, MIXIN, VALUES, Manifest, manifests

VERSIONS = ("1.30.0", "1.34.0", "1.37.0")
"""The oldest one that the chart allows, one between, and the newest one of the package kubernetes-validate."""


@cache
def strict_validator(version: str, kind: str, api_version: str) -> Any:
    """Return the validator of a kind, with the schemas of kubernetes-validate, which reads them anew each time."""
    group, _, number = api_version.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], number) if part)
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"
    with as_file(folder / f"{name}.json") as schema, as_file(folder / "_definitions.json") as definitions:
        resources = [Resource.from_contents(json.loads(file.read_text())) for file in (definitions, schema)]
    registry: Any = Registry()
    for resource in resources:
        registry = resource @ registry
    return jsonschema.Draft202012Validator(resources[-1].contents, registry=registry)


def foreign(each: Manifest) -> bool:
    """Return whether a kind is one that Kubernetes itself does not define."""
    return f"{each['apiVersion']}/{each['kind']}" in KINDS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", VALUES)
def test_every_object_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    objects = manifests("-f", str(VALUES[name]))
    assert len(objects) > 5
    for each in objects:
        if not foreign(each):
            strict_validator(version, each["kind"], each["apiVersion"]).validate(each)


def test_the_schema_of_kubernetes_is_strict() -> None:
    service = next(each for each in manifests("-f", str(VALUES["minimal"])) if each["kind"] == "Service")
    wrong = {**service, "spec": {**service["spec"], "slector": {}}}
    with pytest.raises(jsonschema.ValidationError):
        strict_validator(VERSIONS[-1], "Service", "v1").validate(wrong)


def identity(each: Manifest) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


@pytest.mark.parametrize("name", VALUES)
def test_two_releases_share_a_namespace(name: str) -> None:
    """No object of one is an object of the other, and no selector of one matches pods of the other."""
    first, second = (manifests("-f", str(VALUES[name]), release=release) for release in ("orders", "users"))
    names = Counter(identity(each) for each in (*first, *second))
    assert [each for each, count in names.items() if count > 1] == []
    pods = [pod_labels(each) for each in second if pod_labels(each)]
    for selector in (selector_of(each) for each in first):
        assert selector is None or not any(selector.items() <= labels.items() for labels in pods)


def test_dashboards_and_rules_of_two_releases_differ() -> None:
    """Grafana refuses a dashboard whose uid or file is there already."""
    boards: Counter[str] = Counter()
    files_: Counter[str] = Counter()
    for release in ("orders", "users"):
        for each in manifests("-f", str(VALUES["full"]), release=release):
            if each["kind"] == "ConfigMap" and "-dashboard-" in each["metadata"]["name"]:
                files_.update(list(each["data"]))
                boards.update(json.loads(text)["uid"] for text in each["data"].values())
    boards.update(
        json.loads(text)["uid"]
        for each in manifests(release="mixin", chart=str(MIXIN))
        if each["kind"] == "ConfigMap"
        for text in each["data"].values()
    )
    assert len(boards) > 20
    assert max((*boards.values(), *files_.values())) == 1
    assert max(len(uid) for uid in boards) <= 40


def selector_of(each: Manifest) -> dict[str, str] | None:
    selector = each.get("spec", {}).get("selector") if each["kind"] != "CronJob" else None
    found: dict[str, str] | None = selector.get("matchLabels", selector) if selector else None
    return found


def pod_labels(each: Manifest) -> dict[str, str]:
    spec = each.get("spec", {})
    template = spec.get("template") or spec.get("jobTemplate", {}).get("spec", {}).get("template", {})
    labels: dict[str, str] = template.get("metadata", {}).get("labels", {})
    return labels


UPGRADE = ("--set", "image.tag=9.9.9", "--set", "settings.log.level=debug", "--set", "commonLabels.new=label")


@pytest.mark.parametrize("name", VALUES)
def test_an_upgrade_changes_nothing_that_cannot_change(name: str) -> None:
    """Selectors of Deployments and roles of accounts are immutable, and an object that is gone takes its pods along."""
    old = {identity(each): each for each in manifests("-f", str(VALUES[name]))}
    new = {identity(each): each for each in manifests("-f", str(VALUES[name]), *UPGRADE)}
    assert old.keys() == new.keys()
    for key, each in old.items():
        if key[0] in ("Deployment", "PodDisruptionBudget"):
            assert each["spec"]["selector"] == new[key]["spec"]["selector"]
            assert not {"app.kubernetes.io/version", "helm.sh/chart"} & each["spec"]["selector"]["matchLabels"].keys()


SELECTORS = Path(__file__).with_name("chart_selectors.json")
"""Selectors of released versions of the chart, by value file and name of the Deployment."""


@pytest.mark.parametrize("name", ["minimal", "full", "multi-database"])
def test_selectors_are_those_of_the_versions_before(name: str) -> None:
    """Kubernetes refuses an upgrade that changes one; a Deployment may come, and none may go."""
    before = json.loads(SELECTORS.read_text())[name]
    found = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in manifests("-f", str(VALUES[name]))
        if each["kind"] == "Deployment"
    }
    assert {deployment: found.get(deployment) for deployment in before} == before


@pytest.mark.parametrize("name", VALUES)
def test_selectors_match_the_pods_of_their_own_object_only(name: str) -> None:
    objects = [each for each in manifests("-f", str(VALUES[name])) if each["kind"] == "Deployment"]
    for owner in objects:
        selector = owner["spec"]["selector"]["matchLabels"]
        matched = [each["metadata"]["name"] for each in objects if selector.items() <= pod_labels(each).items()]
        assert matched == [owner["metadata"]["name"]]


@pytest.mark.parametrize("release", ["r" * 53, "shale", "orders"])
def test_names_have_the_length_that_kubernetes_allows(release: str) -> None:
    for name in ("full", "azure"):
        for kind, _, found in (identity(each) for each in manifests("-f", str(VALUES[name]), release=release)):
            assert len(found) <= {"CronJob": 52, "ConfigMap": 253}.get(kind, 63)


def test_openshift_chooses_the_ids() -> None:
    for each in manifests("-f", str(VALUES["openshift"])):
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["spec"]["securityContext"] == {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            }


def test_nothing_but_tests_is_a_hook() -> None:
    for name in VALUES:
        for each in manifests("-f", str(VALUES[name])):
            hook = each["metadata"].get("annotations", {}).get("helm.sh/hook")
            assert hook == ("test" if each["kind"] == "Pod" else None)
