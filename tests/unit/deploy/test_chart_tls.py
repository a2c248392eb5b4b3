"""TLS of the chart: one secret for the ports of every daemon, and everything of the chart that asks them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shale.service.config.settings import load_settings
from shale_cli.framework.daemons import DAEMONS, settings_class
from tests.code_blocks import blocks
from tests.paths import REPOSITORY

from .chart import FULL, MINIMAL, VALUES, Manifest, Objects, container, of_kind, pod_templates, refusal, render
from .test_chart import notes_of

TLS = ("--set", "tls.existingSecret=orders-tls")
CA = ("--set", "tls.secretKeys.ca=ca.crt")
CLIENTS = ("--set", "tls.clientCertificates.required=true")
EVERY_DAEMON = (*MINIMAL, "--set", "reader.enabled=true,worker.replicas=1")
FOLDER = "/etc/shale/tls"


def variables(template: Manifest) -> dict[str, Any]:
    """Return the variables of the daemon."""
    return {each["name"]: each.get("value") for each in container(template)["env"]}


def tls_volumes(spec: Manifest) -> list[Manifest]:
    return [each for each in spec["volumes"] if each["name"] == "tls"]


def sources(spec: Manifest) -> dict[str, dict[str, str]]:
    """Return by secret which file is which key."""
    (volume,) = tls_volumes(spec)
    found: dict[str, dict[str, str]] = {}
    for source in volume["projected"]["sources"]:
        secret = source["secret"]
        found.setdefault(secret["name"], {}).update({item["path"]: item["key"] for item in secret["items"]})
    return found


def test_every_daemon_has_the_certificate_and_reads_it() -> None:
    templates = pod_templates(render(*EVERY_DAEMON, *TLS))
    assert set(templates) == set(DAEMONS)
    for role, template in templates.items():
        assert sources(template["spec"]) == {"orders-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key"}}
        assert {"name": "tls", "mountPath": FOLDER, "readOnly": True} in container(template)["volumeMounts"]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables(template).items():
                if name.startswith("SHALE_TLS__"):
                    patch.setenv(name, value)
            section = load_settings(settings_class(role), ["--url", "file:///db"]).settings.tls
        assert (section.cert_file, section.key_file) == (f"{FOLDER}/tls.crt", f"{FOLDER}/tls.key")
        assert (section.ca_file, section.client_ca_file) == (None, None)


def test_probes_ask_over_https() -> None:
    for template in pod_templates(render(*EVERY_DAEMON, *TLS)).values():
        for kind in ("startup", "liveness", "readiness"):
            assert container(template)[f"{kind}Probe"]["httpGet"]["scheme"] == "HTTPS"


def test_probes_of_other_kinds_stay() -> None:
    """An exec probe has no scheme, and the scheme of a port that the chart does not know is the user's."""
    values = (
        *("--set", "writer.probes.startup.httpGet=null,writer.probes.startup.exec.command={true}"),
        *("--set", "writer.probes.liveness.httpGet.port=4000"),
        *("--set", "writer.probes.readiness.httpGet.scheme=HTTP"),
    )
    daemon = container(pod_templates(render(*MINIMAL, *TLS, *values))["writer"])
    assert "httpGet" not in daemon["startupProbe"]
    assert "scheme" not in daemon["livenessProbe"]["httpGet"]
    assert daemon["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_the_collector_as_a_job_has_the_certificate() -> None:
    objects = render(*MINIMAL, *TLS, "--set", "gc.mode=cronjob,gc.schedule=@hourly")
    assert sources(pod_templates(objects)["gc"]["spec"]) == {"orders-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key"}}


def test_backups_have_no_port_and_no_certificate() -> None:
    backup = ("--set", "backup.enabled=true,backup.schedule=@daily,backup.url=s3://other/orders")
    template = pod_templates(render(*MINIMAL, *TLS, *CLIENTS, *backup))["backup"]
    assert tls_volumes(template["spec"]) == []
    assert not [name for name in variables(template) if name.startswith("SHALE_TLS")]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "tls"])
def test_without_the_secret_nothing_speaks_tls(name: str) -> None:
    objects = render("-f", str(VALUES[name]))
    pods = [*pod_templates(objects).values(), *of_kind(objects, "Pod").values()]
    for template in pods:
        assert tls_volumes(template["spec"]) == []
        assert "SHALE_TLS" not in str(template)
        assert "HTTPS" not in str(template)
    for service in of_kind(objects, "Service").values():
        assert all("appProtocol" not in port for port in service["spec"]["ports"])
    for monitor in of_kind(objects, "PodMonitor").values():
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert not {"scheme", "tlsConfig"} & set(endpoint)


def test_keys_of_the_secret_have_other_names() -> None:
    keys = ("--set", r"tls.secretKeys.certificate=chain\.pem,tls.secretKeys.privateKey=key,tls.secretKeys.ca=root")
    template = pod_templates(render(*MINIMAL, *TLS, *keys))["writer"]
    assert sources(template["spec"]) == {
        "orders-tls": {"tls.crt": "chain.pem", "tls.key": "key", "ca.crt": "root"},
    }
    assert variables(template)["SHALE_TLS__CA_FILE"] == f"{FOLDER}/ca.crt"


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ((), {"orders-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key", "client-ca.crt": "ca.crt"}}),
        (
            ("--set", r"tls.clientCertificates.existingSecret=clients,tls.clientCertificates.secretKey=all\.pem"),
            {"orders-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key"}, "clients": {"client-ca.crt": "all.pem"}},
        ),
    ],
)
def test_clients_need_a_certificate(more: tuple[str, ...], wanted: dict[str, dict[str, str]]) -> None:
    for template in pod_templates(render(*EVERY_DAEMON, *TLS, *CLIENTS, *more)).values():
        assert sources(template["spec"]) == wanted
        assert variables(template)["SHALE_TLS__CLIENT_CA_FILE"] == f"{FOLDER}/client-ca.crt"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (("tls.clientCertificates.required=true",), "tls.clientCertificates.required needs tls.existingSecret"),
        (("tls.clientCertificates.existingSecret=clients",), "tls.clientCertificates.required"),
        (("tls.existingSecret=a", "tls.clientCertificates.existingSecret=b"), "tls.clientCertificates.required"),
        (("tls.existingSecret=a", "settings.tls.cert_file=/a"), "settings.tls.cert_file and tls.existingSecret"),
        (("tls.existingSecret=a", "settings.gc.tls.client_ca_file=/a"), "settings.gc.tls.client_ca_file and"),
        (("tls.existingSecret=a", "tls.secretKeys.privateKey="), "privateKey"),
        (("tls.secret=a",), "secret"),
    ],
)
def test_mistakes_are_refused(values: tuple[str, ...], complaint: str) -> None:
    assert complaint in refusal(*MINIMAL, *(word for value in values for word in ("--set", value)))


def test_the_settings_of_one_of_several_databases_are_checked_too() -> None:
    database = "databases[0].name=a,databases[0].url=s3://b/a,databases[0].settings.writer.tls.key_file=/a"
    assert "settings.writer.tls.key_file and tls.existingSecret" in refusal("--set", database, *TLS)


def test_other_settings_of_tls_stay_settings() -> None:
    objects = render(*MINIMAL, *TLS, "--set", "settings.tls.check_interval=1m")
    assert "check_interval: 1m" in objects["ConfigMap", ""]["data"]["config.yaml"]


def test_authorities_may_come_from_another_volume() -> None:
    values = (*MINIMAL, "--set", "settings.tls.ca_file=/etc/ssl/own/ca.pem")
    assert "/etc/ssl/own/ca.pem" in render(*values, *TLS)["ConfigMap", ""]["data"]["config.yaml"]
    assert "settings.tls.ca_file and tls.existingSecret" in refusal(*values, *TLS, *CA)


def test_services_tell_the_protocol_of_their_ports() -> None:
    """Gateways and meshes choose the protocol of a backend by it; Redis over TLS has none that is registered."""
    objects = render(*EVERY_DAEMON, *TLS, "--set", "writer.resp.enabled=true")
    for name in ("writer", "writer-admin", "reader"):
        for port in objects["Service", name]["spec"]["ports"]:
            assert port.get("appProtocol") == (None if port["name"] == "resp" else "https")


def endpoint_of(objects: Objects) -> Manifest:
    (found,) = objects["PodMonitor", ""]["spec"]["podMetricsEndpoints"]
    assert isinstance(found, dict)
    return found


MONITOR = ("--set", "metrics.podMonitor.enabled=true")


def test_prometheus_checks_the_certificate_by_a_name() -> None:
    """It asks addresses of pods, which no certificate has."""
    endpoint = endpoint_of(render(*MINIMAL, *MONITOR, *TLS))
    assert (endpoint["port"], endpoint["scheme"]) == ("admin", "https")
    assert endpoint["tlsConfig"] == {"serverName": "r-shale-writer.default.svc"}
    endpoint = endpoint_of(render(*MINIMAL, *MONITOR, *TLS, *CA, "--set", "tls.serverName=orders.example.com"))
    assert endpoint["tlsConfig"] == {
        "serverName": "orders.example.com",
        "ca": {"secret": {"name": "orders-tls", "key": "ca.crt"}},
    }


def test_the_tls_of_prometheus_is_what_its_operator_takes() -> None:
    own = "metrics.podMonitor.tlsConfig"
    skip = ("--set", f"{own}.insecureSkipVerify=true,{own}.ca=null")
    assert endpoint_of(render(*MINIMAL, *MONITOR, *TLS, *CA, *skip))["tlsConfig"] == {
        "serverName": "r-shale-writer.default.svc",
        "insecureSkipVerify": True,
    }


def test_the_scheme_of_prometheus_without_the_secret() -> None:
    """Certificates that a volume of another kind brings are in ``settings``, where the chart does not look."""
    values = ("--set", "metrics.podMonitor.scheme=https,metrics.podMonitor.tlsConfig.insecureSkipVerify=true")
    endpoint = endpoint_of(render(*MINIMAL, *MONITOR, *values))
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})


def test_a_standby_asks_the_active_writer_by_the_name_of_its_service() -> None:
    """The Service leads to the active writer, and a certificate cannot have the addresses of pods."""
    values = ("--set", "writer.standby.enabled=true,writer.service.port=443")
    pods = pod_templates(render(*MINIMAL, *TLS, *CA, *values))
    for name in ("writer", "writer-standby"):
        found = variables(pods[name])
        assert found["SHALE_WRITER__WRITER_ENDPOINT"] == "https://r-shale-writer.default.svc:443"
        assert found["SHALE_TLS__CA_FILE"] == f"{FOLDER}/ca.crt"
        assert "POD_IP" not in found


def test_the_pod_of_helm_test_has_the_private_key_only_if_it_needs_one() -> None:
    (pod,) = of_kind(render(*MINIMAL, *TLS, *CA), "Pod").values()
    assert sources(pod["spec"]) == {"orders-tls": {"ca.crt": "ca.crt"}}
    (pod,) = of_kind(render(*MINIMAL, *TLS, *CLIENTS), "Pod").values()
    assert sources(pod["spec"]) == {"orders-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key"}}
    (pod,) = of_kind(render(*MINIMAL, *TLS, "--set", "auth.insecure=true"), "Pod").values()
    assert pod["spec"].get("volumes", []) == []


def test_the_notes_have_a_command_over_tls(tmp_path: Path) -> None:
    notes = notes_of(tmp_path, *MINIMAL, *TLS, *CA)
    assert re.search(r"get secret orders-tls -o jsonpath='\{\.data\.ca\\\.crt\}'.+> ca\.crt", notes)
    assert "--connect-to ::127.0.0.1:8080" in notes
    assert "--cacert ca.crt" in notes
    assert "https://r-shale-writer.default.svc:8080/v1/kv/first" in notes
    assert "http://" not in notes
    assert "--cert client.crt --key client.key" in notes_of(tmp_path / "2", *MINIMAL, *TLS, *CLIENTS)
    assert "--cacert" not in notes_of(tmp_path / "3", *MINIMAL, *TLS)


def test_the_full_values_take_tls() -> None:
    """Every other value may be beside it."""
    objects = render(*FULL, *TLS, *CA, *CLIENTS)
    assert {name for name, template in pod_templates(objects).items() if tls_volumes(template["spec"])} == set(DAEMONS)


def test_the_chart_takes_the_values_of_the_page(tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / "how-to" / "tls.md"
    texts = [block.text for block in blocks(page) if block.language == "yaml"]
    with_secret, certificate, without_secret = texts
    file = tmp_path / "values.yaml"
    schemes = []
    for text in (with_secret, without_secret):
        file.write_text(text)
        objects = render("-f", str(file))
        schemes.append(endpoint_of(objects)["scheme"])
        for template in pod_templates(objects).values():
            assert container(template)["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
        file = tmp_path / "others.yaml"
    assert schemes == ["https", "https"]
    wanted = yaml.safe_load(certificate)
    names = {
        name.replace("r-shale", "orders-shale")
        for template in [render(*MINIMAL, *TLS, "--set", "namespaceOverride=storage,writer.standby.enabled=true")]
        for name in re.findall(r"r-shale-writer\.storage\.svc", str(template))
    }
    assert names == {"orders-shale-writer.storage.svc"}
    assert names <= set(wanted["spec"]["dnsNames"])
    assert {"server auth", "client auth"} <= set(wanted["spec"]["usages"])
