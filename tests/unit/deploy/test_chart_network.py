"""The NetworkPolicy of the chart lets those through that must pass, and ``helm test`` is one of them."""

import pytest

from .chart import FULL, MINIMAL, VALUES, Manifest, Objects, container, of_kind, pod_templates, render

OUTSIDE: dict[str, str] = {}
PROMETHEUS = {"app": "prometheus"}


def matches(selector: Manifest | None, labels: dict[str, str]) -> bool:
    """Return whether a label selector of Kubernetes matches; an empty one matches everything."""
    if selector is None:
        return False
    wanted: dict[str, str] = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "NotIn" for each in expressions)
    return wanted.items() <= labels.items() and all(
        labels.get(each["key"]) not in each["values"] for each in expressions
    )


def is_peer(peer: Manifest, labels: dict[str, str], namespace: str, own_namespace: str) -> bool:
    if "namespaceSelector" in peer:
        inside = matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
    else:
        inside = namespace == own_namespace
    return inside and ("podSelector" not in peer or matches(peer["podSelector"], labels))


class Cluster:
    """The policies of a release, evaluated as Kubernetes documents it."""

    def __init__(self, objects: Objects) -> None:
        self.policies = list(of_kind(objects, "NetworkPolicy").values())
        self.namespace: str = self.policies[0]["metadata"]["namespace"]

    def admits(self, pod: Manifest, port: int, labels: dict[str, str], namespace: str | None = None) -> bool:
        """Return whether a pod takes a connection to a port from a pod with these labels."""
        own = pod["metadata"]["labels"]
        names = {each["containerPort"]: each["name"] for each in container(pod)["ports"]}
        rules = [
            rule for each in self.policies if matches(each["spec"]["podSelector"], own)
            for rule in each["spec"].get("ingress", [])
        ]  # fmt: skip
        assert rules, "without a policy every connection is admitted"
        return any(
            any(is_peer(peer, labels, namespace or self.namespace, self.namespace) for peer in rule["from"])
            and any(each["port"] in (port, names.get(port)) for each in rule["ports"])
            for rule in rules
        )

    def reaches(self, labels: dict[str, str], port: int, target: dict[str, str] | None = None) -> bool:
        """Return whether pods with these labels may connect to a port of a pod, or of a server elsewhere."""
        rules = [
            rule for each in self.policies if matches(each["spec"]["podSelector"], labels)
            for rule in each["spec"].get("egress", [])
        ]  # fmt: skip
        return any(
            any(str(each["port"]) == str(port) for each in rule["ports"])
            and (
                "to" not in rule
                or (target is not None and any(matches(peer.get("podSelector"), target) for peer in rule["to"]))
            )
            for rule in rules
        )


def test_the_policy_is_on_and_closed_to_other_namespaces() -> None:
    objects = render(*MINIMAL)
    cluster = Cluster(objects)
    for role, pod in pod_templates(objects).items():
        assert cluster.admits(pod, 9464, PROMETHEUS)
        assert not cluster.admits(pod, 9464, PROMETHEUS, "monitoring")
        if role == "writer":
            assert cluster.admits(pod, 8080, OUTSIDE)
            assert not cluster.admits(pod, 8080, OUTSIDE, "shop")


def test_named_namespaces_are_admitted_and_no_others() -> None:
    objects = render(*FULL)
    cluster = Cluster(objects)
    writer = pod_templates(objects)["writer"]
    assert cluster.admits(writer, 8080, OUTSIDE, "shop")
    assert cluster.admits(writer, 6379, OUTSIDE, "shop")
    assert not cluster.admits(writer, 9464, OUTSIDE, "shop")
    assert cluster.admits(writer, 9464, PROMETHEUS, "monitoring")
    assert not cluster.admits(writer, 8080, PROMETHEUS, "monitoring")


@pytest.mark.parametrize("name", VALUES)
def test_the_pod_of_helm_test_reaches_every_writer(name: str) -> None:
    objects = render("-f", str(VALUES[name]))
    cluster = Cluster(objects)
    (test,) = of_kind(objects, "Pod").values()
    labels = test["metadata"]["labels"]
    for pod in (each for each in pod_templates(objects).values() if container(each)["name"] == "writer"):
        for port in (8080, 9464):
            assert cluster.reaches(labels, port, pod["metadata"]["labels"])
            assert cluster.admits(pod, port, labels)
    assert cluster.reaches(labels, 53)
    assert not cluster.reaches(labels, 443)


@pytest.mark.parametrize(
    ("endpoint", "wal", "ports"),
    [
        ("", "", {443}),
        ("http://minio:9000", "", {9000}),
        ("http://minio", "", {80}),
        ("https://store.example/", "s3://log", {443}),
        ("https://[fd00::1]:9443/path", "", {9443}),
    ],
)
def test_the_port_of_the_store_is_open(endpoint: str, wal: str, ports: set[int]) -> None:
    values = f"objectStore.endpoint={endpoint},objectStore.existingSecret=keys,database.walStore={wal}"
    objects = render(*MINIMAL, "--set", values)
    cluster = Cluster(objects)
    for pod in pod_templates(objects).values():
        labels = pod["metadata"]["labels"]
        assert {port for port in (80, 443, 8080, 9000, 9443) if cluster.reaches(labels, port)} == ports


def test_an_identity_of_the_cloud_needs_its_services() -> None:
    """Without static credentials, tokens are exchanged at port 443, and metadata services are asked at port 80."""
    objects = render(*MINIMAL, "--set", "objectStore.endpoint=http://minio:9000")
    cluster = Cluster(objects)
    labels = pod_templates(objects)["writer"]["metadata"]["labels"]
    assert cluster.reaches(labels, 443)
    assert "169.254.169.254/32" in str(cluster.policies)
    static = render(*MINIMAL, "--set", "objectStore.existingSecret=keys")
    assert "169.254" not in str(Cluster(static).policies)


def test_ports_can_be_named() -> None:
    objects = render(*MINIMAL, "--set", "networkPolicy.storePorts={9000}")
    labels = pod_templates(objects)["gc"]["metadata"]["labels"]
    assert Cluster(objects).reaches(labels, 9000)
    assert not Cluster(objects).reaches(labels, 443)
