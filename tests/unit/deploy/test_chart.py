"""The chart renders what the daemons accept."""

from base64 import b64decode
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
import yaml

from shale.core.token_hash import token_hash
from shale.service.config.settings import load_settings
from shale.service.exit_codes import ExitCode
from shale_cli.framework.daemons import DAEMONS, settings_class

from .chart import (
    CHART,
    FULL,
    MINIMAL,
    VALUES,
    Manifest,
    Objects,
    container,
    manifests,
    of_kind,
    pod_templates,
    refusal,
    render,
)

TWO_IDENTITIES = (
    *("--set", "objectStore.existingSecret=keys"),
    *("--set-string", r"serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::1:role/shale"),
)
SECRETS = {
    "store__access_key_id": "id",
    "store__secret_access_key": "hidden",
    "http__bearer_token": "t" * 16,
    "tokens__read": "one two",
    "tokens__write": token_hash("two and a half"),
    "tokens__admin": "three",
    "standby__token": "five",
    "admin__bearer_token": "four",
}


@pytest.mark.slow
def test_the_same_twice() -> None:
    """GitOps tools compare renderings, so that nothing may be random."""
    assert render(*FULL) == render("--include-crds", *FULL)


def test_the_default_chart_has_three_deployments() -> None:
    objects = render(*MINIMAL)
    assert set(of_kind(objects, "Deployment")) == {"writer", "compactor", "gc"}
    assert not any(kind in ("PodDisruptionBudget", "HorizontalPodAutoscaler", "PrometheusRule") for kind, _ in objects)
    ports = objects["Service", "writer"]["spec"]["ports"]
    assert [port["name"] for port in ports] == ["http"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "database.url"),
        ((*MINIMAL, "--set", "writer.replicas=2"), "replicas"),
        ((*MINIMAL, "--set", "compactor.embeddedWorker=false"), "compactions would not run"),
        ((*MINIMAL, "--set", "gc.mode=cronjob"), "gc.schedule"),
        ((*MINIMAL, "--set", "gc.schedule=@hourly"), "gc.mode"),
        ((*MINIMAL, "--set", "gc.mode=job"), "daemon"),
        ((*MINIMAL, "--set", "auth.roleKeys.read=readers"), "auth.existingSecret"),
        ((*MINIMAL, "--set", "auth.existingSecret=tokens", "--set", "auth.secretKey="), "auth.roleKeys"),
        ((*MINIMAL, "--set", "auth.existingSecret=tokens", "--set", "auth.insecure=true"), "auth.insecure"),
        ((*MINIMAL, "--set", "auth.existingSecret=tokens", "--set", "auth.roleKeys.root=readers"), "root"),
        ((*MINIMAL, "--set", "databases[0].name=a,databases[0].url=s3://b/a"), "give one of them"),
        (("--set", "databases[0].name=a,databases[1].name=a", "--set", "databases[0].url=s3://b/a"), "url"),
        (("--set", "databases[0].name=Orders,databases[0].url=s3://b/a"), "pattern"),
        (("--set", "databases[0].name=backup,databases[0].url=s3://b/a"), "databases.0.name"),
        (("--set", "databases[0].name=gc,databases[0].url=s3://b/a"), "databases.0.name"),
        (("--set", f"databases[0].name={'o' * 48},databases[0].url=s3://b/a"), "too long"),
        ((*MINIMAL, "--set", "writer.ingress.enabled=true"), "writer.ingress.hosts"),
        ((*MINIMAL, "--set", "worker.autoscaling.enabled=true,worker.autoscaling.minReplicas=0"), "only KEDA"),
        ((*MINIMAL, "--set", "metrics.dashboards.enabled=true"), "helm/shale-mixin"),
        ((*MINIMAL, "--set", "metrics.serviceMonitor.enabled=true"), "serviceMonitor"),
        ((*MINIMAL, *TWO_IDENTITIES), "two kinds of credentials"),
    ],
)
def test_mistakes_are_refused_early(arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in refusal(*arguments)


def test_a_name_of_a_database_is_there_once() -> None:
    both = "databases[0].name=a,databases[1].name=a,databases[0].url=s3://b/a,databases[1].url=s3://b/b"
    assert "the name a is there twice" in refusal("--set", both)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("metrics.podMonitor.enabled=true", "monitoring.coreos.com/v1/PodMonitor"),
        ("writer.httpRoute.enabled=true", "gateway.networking.k8s.io/v1/HTTPRoute"),
        ("worker.autoscaling.enabled=true,worker.autoscaling.keda.enabled=true", "keda.sh/v1alpha1/ScaledObject"),
    ],
)
def test_a_kind_that_the_cluster_lacks_is_named(values: str, kind: str) -> None:
    message = refusal(*MINIMAL, "--set", values)
    assert f"the cluster does not know {kind}" in message
    assert "requireKinds" in message


def test_one_writer_and_many_readers() -> None:
    objects = render(*FULL)
    writer, reader = objects["Deployment", "writer"]["spec"], objects["Deployment", "reader"]["spec"]
    assert (writer["replicas"], writer["strategy"]) == (1, {"type": "Recreate"})
    assert ("PodDisruptionBudget", "writer") not in objects
    assert "replicas" not in reader
    assert objects["HorizontalPodAutoscaler", "reader"]["spec"]["scaleTargetRef"]["name"] == "r-shale-reader"
    for role in ("reader", "writer"):
        selector = objects["Service", role]["spec"]["selector"]
        labels = objects["Deployment", role]["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()
        others = [each for name, each in pod_templates(objects).items() if name != role]
        assert not any(selector.items() <= each["metadata"]["labels"].items() for each in others)
    assert [port["name"] for port in objects["Service", "writer"]["spec"]["ports"]] == ["http", "resp"]


def test_pods_are_restricted_and_probed() -> None:
    templates = pod_templates(render(*FULL))
    assert set(templates) == set(DAEMONS)
    for role, template in templates.items():
        spec, daemon = template["spec"], container(template)
        assert daemon["args"][0] == role
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["enableServiceLinks"] is False
        assert daemon["securityContext"]["readOnlyRootFilesystem"]
        assert daemon["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "cpu" not in daemon["resources"]["limits"]
        assert {daemon[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {"/livez"}
        assert daemon["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
        ports = [port["name"] for port in daemon["ports"]]
        assert ports == (["admin", "http", "resp"] if role in ("writer", "reader") else ["admin"])


def taken(objects: Objects, template: Manifest, folder: Path) -> Any:
    """Return the settings that a daemon reads from the file, the variables and the secret files of its pod."""
    daemon = container(template)
    role = daemon["name"]
    mounted, config, keys = folder / f"secrets-{role}", folder / "config.yaml", folder / "keys"
    mounted.mkdir()
    keys.write_text(f"first {'ab' * 32}\n")
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    name = volumes["config"]["configMap"]["name"].removeprefix("r-shale").removeprefix("-")
    text = objects["ConfigMap", name]["data"]["config.yaml"]
    config.write_text(text.replace("/etc/shale/encryption/keys", str(keys)))
    for source in volumes.get("secrets", {"projected": {"sources": []}})["projected"]["sources"]:
        for item in source["secret"]["items"]:
            (mounted / item["path"]).write_text(SECRETS[item["path"]])
    with pytest.MonkeyPatch.context() as patch:
        for each in daemon["env"]:
            patch.setenv(each["name"], each.get("value", "").replace("$(POD_IP)", "10.0.0.7"))
        patch.setenv("SHALE_CONFIG", str(config))
        patch.setenv("SHALE_SECRETS_DIR", str(mounted))
        loaded = load_settings(settings_class(role), daemon["args"][1:])
    assert loaded.unknown_env == ()
    return loaded.settings


def test_daemons_take_what_is_rendered(tmp_path: Path) -> None:
    objects = render(*FULL)
    for role in DAEMONS:
        template = objects["Deployment", role]["spec"]["template"]
        settings = taken(objects, template, tmp_path)
        assert settings.log.level == "debug"
        assert settings.admin.require_token
        assert settings.store.secret_access_key.get_secret_value() == "hidden"
        assert (settings.block_transformer() is None) == (role == "gc")
        mounts = {each["name"] for each in container(template)["volumeMounts"]}
        assert ("encryption" in mounts) == (role != "gc")
        assert [(token.get_secret_value(), role.label) for token, role in settings.tokens.roles()] == [
            ("one", "read"),
            ("two", "read"),
            ("three", "admin"),
        ]
        if role in ("writer", "reader"):
            assert settings.http.bearer_token.get_secret_value() == SECRETS["http__bearer_token"]
            assert settings.merge_operator == "int_add"
            assert settings.resp.enabled
        if role == "writer":
            assert (settings.flush_interval, settings.shutdown.deadline) == (0.05, 110.0)


@pytest.mark.parametrize("name", [name for name in VALUES if name != "full"])
def test_daemons_take_what_other_values_render(name: str, tmp_path: Path) -> None:
    objects = render("-f", str(VALUES[name]))
    daemons = [each for each in pod_templates(objects).values() if container(each)["name"] in DAEMONS]
    for number, template in enumerate(daemons):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert str(taken(objects, template, folder).database.url).startswith(("s3://", "az://"))


def test_the_collector_as_a_job(tmp_path: Path) -> None:
    """One pass with the settings of a daemon; no alert fires because metrics are absent between two passes."""
    objects = render(*FULL, "--set", "gc.mode=cronjob,gc.schedule=*/10 * * * *")
    assert ("Deployment", "gc") not in objects
    spec = objects["CronJob", "gc"]["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("*/10 * * * *", "Forbid")
    job = spec["jobTemplate"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    hopeless = (ExitCode.DATA, ExitCode.PANIC, ExitCode.NOPERM, ExitCode.CONFIG, ExitCode.STORE_UNSAFE)
    assert rule["onExitCodes"]["values"] == [code.value for code in hopeless]
    daemon = container(job["template"])
    assert rule["onExitCodes"]["containerName"] == daemon["name"]
    assert not {"startupProbe", "livenessProbe", "readinessProbe", "lifecycle"} & set(daemon)
    settings = taken(objects, job["template"], tmp_path)
    assert settings.once
    assert not settings.dry_run
    assert settings.store.secret_access_key.get_secret_value() == "hidden"
    groups = objects["PrometheusRule", ""]["spec"]["groups"]
    alerts = {rule.get("alert") for group in groups for rule in group["rules"]}
    assert "SlateDBCompactorDown" in alerts
    assert not {"SlateDBGCDown", "ShaleRESPErrors"} & alerts
    assert "gc" in str(objects["PodMonitor", ""]["spec"]["selector"]["matchExpressions"])


def test_tokens_with_a_role_need_no_other_token() -> None:
    keys = ("--set", "auth.existingSecret=tokens", "--set", "auth.secretKey=", "--set", "auth.roleKeys.write=apps")
    templates = pod_templates(render(*MINIMAL, *keys)).values()
    assert len(templates) == 3
    for template in templates:
        (volume,) = [each for each in template["spec"]["volumes"] if each["name"] == "secrets"]
        (source,) = volume["projected"]["sources"]
        assert source["secret"] == {"name": "tokens", "items": [{"key": "apps", "path": "tokens__write"}]}


def test_the_chart_makes_tokens_and_daemons_get_hashes() -> None:
    """The cluster's own tokens are kept: ``lookup`` finds them, which takes a cluster."""
    objects = render(*MINIMAL)
    data = {name: b64decode(text).decode() for name, text in objects["Secret", "tokens"]["data"].items()}
    for name in ("token", "admin-token", "standby-token"):
        assert len(data[name]) == 48
        assert data[f"{name}-hash"] == token_hash(data[name])
    assert len({data["token"], data["admin-token"], data["standby-token"]}) == 3
    for template in pod_templates(objects).values():
        (volume,) = [each for each in template["spec"]["volumes"] if each["name"] == "secrets"]
        (source,) = volume["projected"]["sources"]
        assert source["secret"] == {
            "name": "r-shale-tokens",
            "items": [
                {"key": "token-hash", "path": "tokens__write"},
                {"key": "admin-token-hash", "path": "tokens__admin"},
            ],
        }


def test_a_standby_gets_a_token_to_ask_with_that_may_only_read() -> None:
    pods = pod_templates(render(*MINIMAL, "--set", "writer.standby.enabled=true"))
    for name in ("writer", "writer-standby"):
        (volume,) = [each for each in pods[name]["spec"]["volumes"] if each["name"] == "secrets"]
        assert volume["projected"]["sources"][0]["secret"]["items"][2:] == [
            {"key": "standby-token-hash", "path": "tokens__read"},
            {"key": "standby-token", "path": "standby__token"},
        ]


def test_a_release_may_be_insecure_on_purpose(tmp_path: Path) -> None:
    objects = render(*MINIMAL, "--set", "auth.insecure=true")
    assert ("Secret", "tokens") not in objects
    settings = taken(objects, objects["Deployment", "writer"]["spec"]["template"], tmp_path)
    assert settings.auth.insecure
    assert settings.data_tokens() == []
    assert settings.admin.require_token
    notes = notes_of(tmp_path, *MINIMAL, "--set", "auth.insecure=true")
    assert "every call below /v1/admin/ is refused" in notes
    assert "every client that reaches them reads and writes" in notes
    assert "curl -X PUT --data" in notes


def test_the_token_of_the_admin_port_has_a_secret_of_its_own(tmp_path: Path) -> None:
    objects = render(*MINIMAL, "--set", "auth.admin.existingSecret=operators,auth.admin.secretKey=token")
    for role in ("writer", "compactor", "gc"):
        settings = taken(objects, objects["Deployment", role]["spec"]["template"], tmp_path)
        assert settings.admin.bearer_token.get_secret_value() == SECRETS["admin__bearer_token"]


def test_the_namespace_and_annotations_of_every_object() -> None:
    for (_, name), each in render(*FULL).items():
        assert each["metadata"]["namespace"] == "storage"
        assert each["metadata"]["annotations"]["contact"] == "orders@example.com", name
        assert each["metadata"]["labels"]["team"] == "orders"


NOTES = """
kind: Notes
apiVersion: v1
metadata: {{name: notes, namespace: n}}
text: |
  {{{{- tpl (.Files.Get "{name}") . | nindent 2 }}}}
"""


def notes_of(tmp_path: Path, *arguments: str) -> str:
    """Return the notes; helm template does not print them, so that an object of a copy of the chart does."""
    chart = tmp_path / "chart"
    copytree(CHART, chart, ignore=ignore_patterns("rules", "dashboards"))
    (chart / "templates" / "NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text(NOTES.format(name="notes.txt"))
    (notes,) = [each["text"] for each in manifests(*arguments, chart=str(chart)) if each["kind"] == "Notes"]
    assert isinstance(notes, str)
    return notes


@pytest.mark.parametrize("name", ["minimal", "multi-database"])
def test_the_notes_after_an_installation(name: str, tmp_path: Path) -> None:
    """Commands and warnings."""
    notes = notes_of(tmp_path, "-f", str(VALUES[name]))
    order = [notes.index(word) for word in ("readers, workers", "compactor, gc", "and the writer last")]
    assert order == sorted(order)
    assert "helm -n default test r" in notes
    if name == "minimal":
        assert "rollout status deploy/r-shale-writer" in notes
        assert "TOKEN=$(kubectl -n default get secret r-shale-tokens -o jsonpath='{.data.token}' | base64 -d)" in notes
        assert "is refused" not in notes
    else:
        assert "rollout status deploy/r-shale-orders-writer" in notes
        assert "is refused" not in notes


@pytest.mark.parametrize(
    ("values", "key"),
    [("", "token"), (",auth.secretKey=,auth.roleKeys.write=w.token,auth.roleKeys.read=r", r"w\.token")],
)
def test_the_first_command_has_the_token_that_the_port_wants(values: str, key: str, tmp_path: Path) -> None:
    notes = notes_of(tmp_path, *MINIMAL, "--set", f"auth.existingSecret=tokens{values}")
    wanted = f"TOKEN=$(kubectl -n default get secret tokens -o jsonpath='{{.data.{key}}}' | base64 -d)"
    assert wanted in notes
    assert 'curl -X PUT -H "Authorization: Bearer $TOKEN" --data' in notes


def test_pages_of_values_are_complete() -> None:
    """Each of these files is one way to install the chart; they are more than an overlay."""
    assert set(VALUES) == {"minimal", "full", "multi-database", "s3-endpoint", "azure", "openshift", "tls"}
    for file in VALUES.values():
        values = yaml.safe_load(file.read_text())
        assert values["image"]["repository"]
