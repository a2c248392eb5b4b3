"""Several databases in one release: workers that they share, ways from outside, and the upgrade to them."""

import json
import re
from pathlib import Path

import pytest
import yaml

from shale.service.config.settings import load_settings
from shale_cli.framework.daemons import settings_class
from tests.paths import REPOSITORY

from .chart import CHART, MINIMAL, VALUES, Manifest, Objects, container, of_kind, pod_templates, refusal, render

MULTI = ("-f", str(VALUES["multi-database"]))
SELECTORS = json.loads(Path(__file__).with_name("chart_selectors.json").read_text())
TWO = "databases[0].name=a,databases[0].url=s3://b/a,databases[1].name=b,databases[1].url=s3://b/b"
SHARED = ("--set", f"{TWO},worker.replicas=2,compactor.embeddedWorker=false")


def values(tmp_path: Path, text: str) -> tuple[str, str]:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    return "-f", str(file)


def workers(objects: Objects) -> dict[str, Manifest]:
    deployments = of_kind(objects, "Deployment")
    return {name: each for name, each in deployments.items() if container(each["spec"]["template"])["name"] == "worker"}


def served(objects: Objects, name: str, tmp_path: Path) -> dict[str, str]:
    """Return the paths that a daemon serves, and their labels in metrics."""
    role = container(objects["Deployment", name]["spec"]["template"])["name"]
    file = tmp_path / f"{name}.yaml"
    file.write_text(objects["ConfigMap", name]["data"]["config.yaml"])
    settings = load_settings(settings_class(role), ["--config", str(file)]).settings
    return {root: settings.label_of(root) for root in settings.roots()}


def test_databases_of_one_store_share_workers(tmp_path: Path) -> None:
    objects = render(*MULTI)
    found = {name: served(objects, name, tmp_path) for name in workers(objects) if name != "users-worker"}
    assert sorted(map(sorted, found.values())) == [["events"], ["shop/carts", "shop/orders"]]
    (shared,) = [each for each in found.values() if len(each) > 1]
    assert shared == {"shop/orders": "orders", "shop/carts": "carts"}
    for name in found:
        spec = objects["Deployment", name]["spec"]
        assert spec["replicas"] == 2
        assert spec["template"]["spec"]["serviceAccountName"] == "r-shale-worker"
        assert "checksum/config" in spec["template"]["metadata"]["annotations"]
    (collector,) = [
        name for name in of_kind(objects, "ConfigMap")
        if name.startswith("gc-") and len(served(objects, name, tmp_path)) == 3
    ]  # fmt: skip
    assert served(objects, collector, tmp_path)["shop/users"] == "users"


def test_a_database_with_values_for_workers_has_its_own(tmp_path: Path) -> None:
    objects = render(*MULTI)
    assert "users-worker" in workers(objects)
    assert "worker" not in yaml.safe_load(objects["ConfigMap", "users"]["data"]["config.yaml"])
    assert not any(
        "shop/users" in served(objects, name, tmp_path) for name in workers(objects) if name != "users-worker"
    )


def test_one_group_of_workers_has_the_name_of_the_role(tmp_path: Path) -> None:
    objects = render(*SHARED)
    assert set(workers(objects)) == {"worker"}
    assert objects["Deployment", "worker"]["spec"]["selector"]["matchLabels"]["shale/workers"] == "shared"
    assert served(objects, "worker", tmp_path) == {"a": "a", "b": "b"}
    other = render(*SHARED, "--set", "databases[0].url=s3://b/c")
    selectors = [each["Deployment", "worker"]["spec"]["selector"] for each in (objects, other)]
    assert selectors[0] == selectors[1], "Kubernetes refuses another selector"


SETTINGS = """
worker: {replicas: 1}
databases:
  - {name: a, url: "s3://b/a", settings: {writer: {flush_interval: 50ms}}}
  - {name: b, url: "s3://b/b"}
  - {name: c, url: "s3://b/c", settings: {compression_codec: zstd}}
  - {name: d, url: "s3://b/d", settings: {worker: {compactor_options: {worker: {merge_operator: int_add}}}}}
"""


def test_workers_are_shared_only_with_the_same_settings(tmp_path: Path) -> None:
    """A worker has one merge operator and one compression; settings of other roles are none of its business."""
    objects = render(*values(tmp_path, SETTINGS))
    groups = sorted(sorted(served(objects, name, tmp_path)) for name in workers(objects))
    assert groups == [["a", "b"], ["c"], ["d"]]
    configs = [yaml.safe_load(objects["ConfigMap", name]["data"]["config.yaml"]) for name in workers(objects)]
    assert [each["database"]["url"] for each in configs if each.get("compression_codec") == "zstd"] == ["s3://b/c"]
    assert not any("writer" in each for each in configs)


def test_a_pod_has_at_most_one_disruption_budget() -> None:
    """Kubernetes evicts no pod that has two."""
    objects = render(*MULTI)
    selectors = [
        each["spec"]["selector"]["matchLabels"].items() for each in of_kind(objects, "PodDisruptionBudget").values()
    ]
    for name, template in pod_templates(objects).items():
        found = sum(selector <= template["metadata"]["labels"].items() for selector in selectors)
        assert found == (1 if container(template)["name"] in ("reader", "worker") else 0), name


def test_no_workers_at_all_would_leave_compactions() -> None:
    off = ("--set", f"{TWO},compactor.embeddedWorker=false")
    assert "compactions would not run" in refusal(*off)
    assert "compactions would not run" in refusal(*SHARED, "--set", "databases[1].worker.replicas=0")
    assert "worker" in workers(render(*SHARED))


SCALED = "worker.autoscaling.enabled=true,worker.autoscaling.targetCPUUtilizationPercentage=null"


def test_shared_workers_follow_the_backlog_of_all_their_databases() -> None:
    scaled = (*SHARED, "--set", f"{SCALED},worker.autoscaling.backlog.enabled=true,databases[1].alias=second")
    (metric,) = render(*scaled)["HorizontalPodAutoscaler", "worker"]["spec"]["metrics"]
    assert metric["external"]["metric"]["selector"] == {
        "matchLabels": {"namespace": "default"},
        "matchExpressions": [{"key": "db", "operator": "In", "values": ["a", "second"]}],
    }
    own = render(*scaled, "--set", "worker.autoscaling.backlog.matchLabels.release=r")
    (metric,) = own["HorizontalPodAutoscaler", "worker"]["spec"]["metrics"]
    assert metric["external"]["metric"]["selector"] == {"matchLabels": {"release": "r"}}


def test_a_path_that_is_no_label_value_needs_an_alias() -> None:
    """Kubernetes refuses a selector with a slash only when the autoscaler asks, so that no worker would come."""
    deep = ("--set", "database.url=s3://b/shop/orders", "--set", f"{SCALED},worker.autoscaling.backlog.enabled=true")
    assert "shop/orders: give the database an alias" in refusal(*deep)
    render(*deep, "--set", "database.alias=orders")


def test_keda_sums_the_backlog_of_all_databases() -> None:
    keda = f"{SCALED},worker.autoscaling.keda.enabled=true,worker.autoscaling.keda.serverAddress=http://p"
    objects = render(*SHARED, "--set", keda, "--set", "databases[1].alias=b.2")
    (trigger,) = objects["ScaledObject", "worker"]["spec"]["triggers"]
    assert trigger["metadata"]["query"] == (
        'sum(max by (db) (slatedb_compactor_backlog_jobs{namespace="default", db=~"a|b\\\\.2"}))'
    )


def test_each_database_has_its_own_way_from_outside(tmp_path: Path) -> None:
    objects = render(*MULTI)
    hosts = {name: each["spec"]["rules"][0]["host"] for name, each in of_kind(objects, "Ingress").items()}
    assert hosts == {f"{name}-writer": f"{name}.example.com" for name in ("orders", "carts", "users", "events")}
    tls = objects["Ingress", "carts-writer"]["spec"]["tls"]
    assert tls == [{"secretName": "carts-tls", "hosts": ["carts.example.com"]}]
    gateway = "writer: {httpRoute: {enabled: true, parentRefs: [{name: g}], path: '/{database}'}}"
    routes = of_kind(render("--set", TWO, *values(tmp_path, gateway)), "HTTPRoute")
    paths = {name: each["spec"]["rules"][0]["matches"][0]["path"]["value"] for name, each in routes.items()}
    assert paths == {"a-writer": "/a", "b-writer": "/b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "writer: {ingress: {enabled: true, hosts: [x.example]}}",
            "r-shale-a-writer and r-shale-b-writer both have the host x.example and the path /",
        ),
        ("writer: {httpRoute: {enabled: true, parentRefs: [{name: g}]}}", "both have the host * and the path /"),
        (
            "{writer: &i {ingress: {enabled: true, hosts: ['{database}.example']}}, reader: {enabled: true, <<: *i}}",
            "r-shale-a-writer and r-shale-a-reader both have the host a.example",
        ),
    ],
)
def test_two_ways_that_lead_to_one_host_are_refused(text: str, message: str, tmp_path: Path) -> None:
    assert message in refusal("--set", f"{TWO},requireKinds=false", *values(tmp_path, text))


def test_two_controllers_may_have_one_host(tmp_path: Path) -> None:
    text = """
    writer: {ingress: {enabled: true, className: inside, hosts: [x]}}
    reader: {enabled: true, ingress: {enabled: true, hosts: [x]}}
    """
    assert len(of_kind(render(*MINIMAL, *values(tmp_path, text)), "Ingress")) == 2


def test_one_database_has_no_name_to_insert(tmp_path: Path) -> None:
    text = "writer: {ingress: {enabled: true, hosts: ['{database}.example']}}"
    assert "is the name of one of several databases" in refusal(*MINIMAL, *values(tmp_path, text))


@pytest.mark.parametrize("setting", ["settings.worker.databases={c}", "databases[0].settings.worker.databases={c}"])
def test_what_workers_serve_is_made_of_databases(setting: str) -> None:
    assert "made of databases" in refusal(*SHARED, "--set", setting)


def test_an_upgrade_replaces_workers_of_each_database_by_shared_ones() -> None:
    """Before, `worker.replicas` gave each database a Deployment.  Workers keep nothing; all other objects stay."""
    before = SELECTORS["workers-of-each-database"]
    stays = ("--set", "reader.enabled=true,writer.standby.enabled=true")
    after = {
        each["metadata"]["name"]: each["spec"]["selector"]["matchLabels"]
        for each in of_kind(render(*SHARED, *stays), "Deployment").values()
    }
    assert before.keys() - after.keys() == {"r-shale-a-worker", "r-shale-b-worker"}
    assert after.keys() - before.keys() == {"r-shale-worker"}
    assert {name: after[name] for name in before if name in after} == {
        name: selector for name, selector in before.items() if name in after
    }
    kept = render(*SHARED, *stays, "--set", "databases[0].worker.replicas=2,databases[1].worker.replicas=2")
    assert {each["metadata"]["name"] for each in of_kind(kept, "Deployment").values()} == before.keys()
    page = re.sub(r"\s+", " ", (REPOSITORY / "docs" / "how-to" / "kubernetes.md").read_text())
    assert "`<fullname>-<database>-worker` become `<fullname>-worker`" in page


ZERO_IS_A_VALUE = ("replicas", "keep", "minReplicas", "cooldownPeriod")


def test_no_template_takes_a_number_for_a_truth() -> None:
    """Helm 3.18.0 gives templates numbers as texts, of which 0 is true; ``int`` makes a number of both."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    zero = {
        name
        for definition in schema["definitions"].values()
        for name, each in definition.get("properties", {}).items()
        if isinstance(each, dict) and each.get("type") == "integer" and each.get("minimum") == 0
    }
    assert {"replicas", "keep"} <= zero
    tests = re.compile(r"\{\{-?(?=[^}]*\b(?:if|with|or|and|not) )[^}]*")
    for file in sorted((CHART / "templates").rglob("*.*")):
        for condition in tests.findall(file.read_text()):
            for name in ZERO_IS_A_VALUE:
                used = re.findall(rf"(\w+ +)?[$.][\w.]*\.{name}\b", condition)
                assert all(before.strip() == "int" for before in used), f"{file.name}: {condition}"
