"""A warm standby beside the writer: two Deployments, one Service, and the network between them."""

import pytest

from .chart import MINIMAL, VALUES, Manifest, Objects, container, manifests, of_kind, pod_templates, refusal, render

STANDBY = (*MINIMAL, "--set", "writer.standby.enabled=true")
WRITERS = ("writer", "writer-standby")


def labels_of(template: Manifest) -> dict[str, str]:
    found: dict[str, str] = template["metadata"]["labels"]
    return found


@pytest.fixture
def objects() -> Objects:
    return render(*STANDBY)


def test_both_writers_wait_for_each_other(objects: Objects) -> None:
    """After a takeover the first one is the standby, so that both start with the same arguments."""
    assert "writer-standby" not in of_kind(render(*MINIMAL), "Deployment")
    for name in WRITERS:
        daemon = container(pod_templates(objects)[name])
        assert (daemon["name"], daemon["args"]) == ("writer", ["writer", "--standby"])
        assert objects["Deployment", name]["spec"]["replicas"] == 1
    assert container(pod_templates(render(*MINIMAL))["writer"])["args"] == ["writer"]


def test_the_services_lead_to_the_writer_that_is_ready(objects: Objects) -> None:
    """Both pods match, and Kubernetes leaves out the one that is not ready."""
    assert set(of_kind(objects, "Service")) == {"writer", "writer-admin"}
    for service in of_kind(objects, "Service").values():
        selector = service["spec"]["selector"]
        for name, template in pod_templates(objects).items():
            assert (selector.items() <= labels_of(template).items()) == (name in WRITERS)
        assert not service["spec"].get("publishNotReadyAddresses")


def test_selectors_of_the_two_deployments_do_not_overlap(objects: Objects) -> None:
    for name in WRITERS:
        selector = objects["Deployment", name]["spec"]["selector"]["matchLabels"]
        matched = [
            other for other, each in pod_templates(objects).items() if selector.items() <= labels_of(each).items()
        ]
        assert matched == [name]


def test_a_rollout_does_not_wait_for_the_pod_that_waits(objects: Objects) -> None:
    """Helm and kubectl wait for ready pods; the standby is never ready, and no second pod starts beside the first."""
    for name in WRITERS:
        spec = objects["Deployment", name]["spec"]
        assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        assert spec["progressDeadlineSeconds"] == 2**31 - 1


def test_the_two_are_on_different_nodes_and_know_the_address_of_the_other(objects: Objects) -> None:
    for name in WRITERS:
        template = pod_templates(objects)[name]
        (spread,) = template["spec"]["topologySpreadConstraints"]
        selector = spread["labelSelector"]["matchLabels"]
        assert all(selector.items() <= labels_of(pod_templates(objects)[other]).items() for other in WRITERS)
        address, endpoint = container(template)["env"][-2:]
        assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        assert endpoint == {"name": "SHALE_WRITER__WRITER_ENDPOINT", "value": "http://$(POD_IP):8080"}


def test_an_address_of_the_settings_is_kept() -> None:
    """Variables override the settings file."""
    endpoint = ("--set", "settings.writer.writer_endpoint=http://writer.example")
    daemon = container(pod_templates(render(*STANDBY, *endpoint))["writer"])
    assert "POD_IP" not in [each["name"] for each in daemon["env"]]


def test_a_standby_may_ask_the_active_writer(objects: Objects) -> None:
    def rules(policy: Manifest) -> list[Manifest]:
        found: list[Manifest] = policy["spec"]["egress"]
        return found

    data = {"ports": [{"port": 8080, "protocol": "TCP"}]}
    own = {
        "to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "shale", "app.kubernetes.io/instance": "r"}}}]
    }
    assert {**own, **data} in rules(objects["NetworkPolicy", ""])
    assert {**own, **data} not in rules(render(*MINIMAL)["NetworkPolicy", ""])


def test_the_standby_is_upgraded_first() -> None:
    """Its image is that of the writer, or one of its own for this step."""
    values = ("--set", "writer.image.tag=1.0.0")
    before, after = (
        pod_templates(render(*STANDBY, *values, *more)) for more in ((), ("--set", "writer.standby.image.tag=1.1.0"))
    )
    assert [name for name in before if before[name] != after[name]] == ["writer-standby"]
    assert container(after["writer-standby"])["image"] == "shale:1.1.0"
    assert container(before["writer-standby"])["image"] == "shale:1.0.0"


def test_a_claim_belongs_to_one_of_them() -> None:
    claim = (*STANDBY, "--set", "writer.cache.existingClaim=first")
    assert "cannot share the claim" in refusal(*claim)
    pods = pod_templates(render(*claim, "--set", "writer.standby.cache.existingClaim=second"))
    for name, wanted in zip(WRITERS, ("first", "second"), strict=True):
        (volume,) = [each for each in pods[name]["spec"]["volumes"] if each["name"] == "cache"]
        assert volume["persistentVolumeClaim"]["claimName"] == wanted


def test_one_database_of_several_has_a_standby() -> None:
    objects = manifests("-f", str(VALUES["multi-database"]))
    names = [each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"]
    assert [name for name in names if name.endswith("-standby")] == ["r-shale-orders-writer-standby"]
