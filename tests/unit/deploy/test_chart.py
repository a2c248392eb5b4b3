"""The chart renders what the daemons accept."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from shale.service.config.settings import load_settings
from shale.service.exit_codes import ExitCode
from shale_cli.framework.daemons import DAEMONS, settings_class
from tests.external_tools import require_tool
from tests.paths import REPOSITORY

CHART = REPOSITORY / "helm" / "shale"
FULL = CHART / "ci" / "full-values.yaml"
MINIMAL = ("--set", "database.url=s3://bucket/orders")
SECRETS = {
    "store__access_key_id": "id",
    "store__secret_access_key": "hidden",
    "http__bearer_token": "t" * 16,
    "tokens__read": "one two",
    "tokens__admin": "three",
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [require_tool("helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHART)


def render(*arguments: str) -> dict[tuple[str, str], Any]:
    """Return every object by kind and name without the release name."""
    ended = helm("template", "r", ".", "--kube-version", "1.31", *arguments)
    assert ended.returncode == 0, ended.stderr
    objects = [each for each in yaml.safe_load_all(ended.stdout) if each]
    return {
        (each["kind"], each["metadata"]["name"].removeprefix("r-shale").removeprefix("-")): each for each in objects
    }


def container(deployment: Any) -> Any:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("values", [{}, yaml.safe_load(FULL.read_text())], ids=["defaults", "full"])
def test_values_fit_their_schema(values: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(yaml.safe_load((CHART / "values.yaml").read_text()))
    validator.validate(values)
    assert [error.message for error in validator.iter_errors({"writer": {"replicas": 2}})] != []
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) == set(schema["properties"]) - {"global"}


def test_lint() -> None:
    for arguments in (MINIMAL, ("-f", str(FULL))):
        ended = helm("lint", "--strict", ".", *arguments)
        assert ended.returncode == 0, ended.stdout


def test_the_same_twice() -> None:
    assert render("-f", str(FULL)) == render("-f", str(FULL))


def test_the_default_chart_has_three_deployments() -> None:
    objects = render(*MINIMAL)
    deployments = {name for kind, name in objects if kind == "Deployment"}
    assert deployments == {"writer", "compactor", "gc"}
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
        ((*MINIMAL, "--set", "auth.existingSecret=tokens", "--set", "auth.roleKeys.root=readers"), "root"),
    ],
)
def test_mistakes_are_refused_early(arguments: tuple[str, ...], complaint: str) -> None:
    ended = helm("template", "r", ".", "--kube-version", "1.31", *arguments)
    assert ended.returncode != 0
    assert complaint in ended.stderr


def test_one_writer_and_many_readers() -> None:
    objects = render("-f", str(FULL))
    writer, reader = objects["Deployment", "writer"]["spec"], objects["Deployment", "reader"]["spec"]
    assert (writer["replicas"], writer["strategy"]) == (1, {"type": "Recreate"})
    assert ("PodDisruptionBudget", "writer") not in objects
    assert "replicas" not in reader
    assert objects["HorizontalPodAutoscaler", "reader"]["spec"]["scaleTargetRef"]["name"] == "r-shale-reader"
    for role in ("reader", "writer"):
        selector = objects["Service", role]["spec"]["selector"]
        assert selector == objects["Deployment", role]["spec"]["selector"]["matchLabels"]
    assert [port["name"] for port in objects["Service", "writer"]["spec"]["ports"]] == ["http", "resp"]


def test_pods_are_restricted_and_probed() -> None:
    deployments = {name: each for (kind, name), each in render("-f", str(FULL)).items() if kind == "Deployment"}
    assert set(deployments) == set(DAEMONS)
    for role, deployment in deployments.items():
        spec, only = deployment["spec"]["template"]["spec"], container(deployment)
        assert only["args"][0] == role
        assert spec["securityContext"]["runAsNonRoot"]
        assert only["securityContext"]["readOnlyRootFilesystem"]
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "cpu" not in only["resources"]["limits"]
        assert {only[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {"/livez"}
        assert only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
        ports = [port["name"] for port in only["ports"]]
        assert ports == (["admin", "http", "resp"] if role in ("writer", "reader") else ["admin"])


def taken(objects: dict[tuple[str, str], Any], role: str, template: Any, folder: Path) -> Any:
    """Return the settings that a daemon reads from the file, the variables and the secret files of its pod."""
    mounted, config, keys = folder / f"secrets-{role}", folder / "config.yaml", folder / "keys"
    mounted.mkdir()
    keys.write_text(f"first {'ab' * 32}\n")
    text = objects["ConfigMap", ""]["data"]["config.yaml"]
    config.write_text(text.replace("/etc/shale/encryption/keys", str(keys)))
    sources = next(each for each in template["spec"]["volumes"] if each["name"] == "secrets")
    for source in sources["projected"]["sources"]:
        for item in source["secret"]["items"]:
            (mounted / item["path"]).write_text(SECRETS[item["path"]])
    (only,) = template["spec"]["containers"]
    with pytest.MonkeyPatch.context() as patch:
        for each in only["env"]:
            patch.setenv(each["name"], each["value"])
        patch.setenv("SHALE_CONFIG", str(config))
        patch.setenv("SHALE_SECRETS_DIR", str(mounted))
        loaded = load_settings(settings_class(role), only["args"][1:])
    assert loaded.unknown_env == ()
    return loaded.settings


def test_daemons_take_what_is_rendered(tmp_path: Path) -> None:
    objects = render("-f", str(FULL))
    for role in DAEMONS:
        settings = taken(objects, role, objects["Deployment", role]["spec"]["template"], tmp_path)
        assert settings.store.secret_access_key.get_secret_value() == "hidden"
        assert settings.block_transformer() is not None
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


def test_the_collector_as_a_job(tmp_path: Path) -> None:
    """One pass with the settings of a daemon; no alert fires because metrics are absent between two passes."""
    objects = render("-f", str(FULL), "--set", "gc.mode=cronjob,gc.schedule=*/10 * * * *")
    assert ("Deployment", "gc") not in objects
    spec = objects["CronJob", "gc"]["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("*/10 * * * *", "Forbid")
    job = spec["jobTemplate"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    hopeless = (ExitCode.DATA, ExitCode.PANIC, ExitCode.NOPERM, ExitCode.CONFIG, ExitCode.STORE_UNSAFE)
    assert rule["onExitCodes"]["values"] == [code.value for code in hopeless]
    (only,) = job["template"]["spec"]["containers"]
    assert rule["onExitCodes"]["containerName"] == only["name"]
    assert not {"startupProbe", "livenessProbe", "readinessProbe", "lifecycle"} & set(only)
    settings = taken(objects, "gc", job["template"], tmp_path)
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
    pods = [
        each["spec"]["template"]["spec"] for (kind, _), each in render(*MINIMAL, *keys).items() if kind == "Deployment"
    ]
    assert len(pods) == 3
    for pod in pods:
        (volume,) = [each for each in pod["volumes"] if each["name"] == "secrets"]
        (source,) = volume["projected"]["sources"]
        assert source["secret"] == {"name": "tokens", "items": [{"key": "apps", "path": "tokens__write"}]}


def test_rules_and_dashboards_are_shipped() -> None:
    objects = render("-f", str(FULL))
    groups = objects["PrometheusRule", ""]["spec"]["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    assert len(alerts) > 40
    assert "ShaleRESPErrors" not in alerts
    notes = alerts["SlateDBReaderStale"]["annotations"]
    assert notes["runbook_url"] == "https://runbooks.example/shale/SlateDBReaderStale"
    assert notes["dashboard_url"] == "https://grafana.example/d/slatedb-reader"
    assert "{{ $labels.instance }}" in notes["description"]
    board = json.loads(objects["ConfigMap", "reader"]["data"]["reader.json"])
    assert board["uid"] == "slatedb-reader"
