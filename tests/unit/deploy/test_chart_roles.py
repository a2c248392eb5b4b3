"""Roles: an upgrade in steps, credentials and accounts of their own, extension points, several databases."""

import re
from pathlib import Path

import pytest
import yaml

from tests.paths import REPOSITORY

from .chart import FULL, MINIMAL, ROLES, VALUES, Manifest, container, of_kind, pod_templates, refusal, render

MULTI = ("-f", str(VALUES["multi-database"]))
STEPS = ("reader", "worker", "compactor", "gc", "writer")
ALL_ROLES = (*MINIMAL, "--set", "reader.enabled=true,worker.replicas=1")


def templates(*arguments: str) -> dict[str, Manifest]:
    return pod_templates(render(*arguments))


@pytest.mark.slow
def test_each_step_of_an_upgrade_restarts_one_role() -> None:
    """The sequence of docs/how-to/kubernetes.md: the old version for all, the new one for one role after another."""
    arguments = [*ALL_ROLES, "--set", "image.tag=1.0.0"]
    before = templates(*arguments)
    for role in STEPS:
        arguments += ["--set", f"{role}.image.tag=1.1.0"]
        after = templates(*arguments)
        assert [name for name in before if before[name] != after[name]] == [role]
        assert container(after[role])["image"] == "shale:1.1.0"
        assert after[role]["metadata"]["labels"]["app.kubernetes.io/version"] == "1.1.0"
        before = after
    for role in STEPS:
        arguments += ["--set", f"{role}.image.tag="]
    assert before == templates(*arguments, "--set", "image.tag=1.1.0")


def test_the_page_upgrades_in_this_order() -> None:
    text = (REPOSITORY / "docs" / "how-to" / "kubernetes.md").read_text()
    block = text.partition("## Upgrade in steps")[2].partition("upgrade() {")[2].partition("```")[0]
    assert tuple(re.findall(r"--set (\w+)\.image\.tag=\$NEW", block)) == STEPS


def test_another_version_of_the_chart_restarts_no_pod() -> None:
    """Labels of the chart are on objects, not on pods; the version of a pod is that of its image."""
    for template in templates(*ALL_ROLES, "--set", "image.tag=1.0.0").values():
        assert "helm.sh/chart" not in template["metadata"]["labels"]
        assert template["metadata"]["labels"]["app.kubernetes.io/version"] == "1.0.0"


def test_a_digest_is_no_version() -> None:
    digest = f"sha256:{'ab' * 32}"
    template = templates(*MINIMAL, "--set", f"writer.image.digest={digest}")["writer"]
    assert container(template)["image"] == f"shale@{digest}"
    assert "app.kubernetes.io/version" not in template["metadata"]["labels"]
    both = templates(*MINIMAL, "--set", f"image.digest={digest},writer.image.tag=1.1.0")
    assert container(both["writer"])["image"] == "shale:1.1.0"
    assert container(both["gc"])["image"] == f"shale@{digest}"


def test_a_setting_of_one_role_restarts_this_role_only() -> None:
    before, after = templates(*ALL_ROLES), templates(*ALL_ROLES, "--set", "settings.writer.l0_max_ssts=9")
    assert [name for name in before if before[name] != after[name]] == ["writer"]
    everywhere = templates(*ALL_ROLES, "--set", "settings.log.level=debug")
    assert all(before[name] != everywhere[name] for name in before)


def secrets_of(template: Manifest) -> dict[str, list[str]]:
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    sources = [each["secret"] for each in volumes.get("secrets", {}).get("projected", {}).get("sources", [])]
    found: dict[str, list[str]] = {}
    for each in sources:
        found.setdefault(each["name"], []).extend(item["path"] for item in each["items"])
    return found


def test_roles_have_the_secrets_that_they_need() -> None:
    pods = templates(*FULL)
    assert "writer-credentials" in secrets_of(pods["writer"])
    assert "store-credentials" in secrets_of(pods["reader"])
    for role in ROLES:
        tokens = secrets_of(pods[role])["shale-token"]
        assert ("http__bearer_token" in tokens) == (role in ("reader", "writer"))
    endpoint = templates("-f", str(VALUES["s3-endpoint"]))
    assert set(secrets_of(endpoint["reader"])) == {"minio-readers", "shale-admin", "r-shale-tokens"}
    assert set(secrets_of(endpoint["writer"])) == {"minio", "shale-admin", "r-shale-tokens"}


CREDENTIALS = """
databases:
  - {name: a, url: "s3://b/a"}
  - {name: b, url: "s3://c/b", objectStore: {existingSecret: of-database}}
  - {name: c, url: "s3://d/c", objectStore: {existingSecret: of-database}, writer: {objectStore: {existingSecret: own}}}
objectStore: {existingSecret: of-release}
writer: {objectStore: {existingSecret: of-role}}
"""


def test_the_nearest_credentials_win(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(CREDENTIALS)
    pods = templates("-f", str(file))
    found = {
        f"{name}-{role}": set(secrets_of(pods[f"{name}-{role}"])) - {"r-shale-tokens"}
        for name in "abc"
        for role in ("writer", "compactor")
    }
    assert found == {
        "a-writer": {"of-role"},
        "a-compactor": {"of-release"},
        "b-writer": {"of-database"},
        "b-compactor": {"of-database"},
        "c-writer": {"own"},
        "c-compactor": {"of-database"},
    }


def test_a_role_has_an_account_of_its_own() -> None:
    objects = render(*MINIMAL, "--set", "writer.serviceAccount.create=true,gc.serviceAccount.name=collector")
    assert set(of_kind(objects, "ServiceAccount")) == {"", "writer"}
    accounts = {name: each["spec"]["serviceAccountName"] for name, each in pod_templates(objects).items()}
    assert accounts == {"writer": "r-shale-writer", "compactor": "r-shale", "gc": "collector"}
    accounts_of_databases = of_kind(render(*MULTI), "ServiceAccount")
    assert set(accounts_of_databases) == {"", "worker", "events-writer"}
    annotations = accounts_of_databases["events-writer"]["metadata"]["annotations"]
    assert annotations == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/events"}


def test_a_secret_that_changes_can_restart_pods() -> None:
    before, after = (templates(*MINIMAL, "--set", f"secretsChecksum={text}") for text in ("a", "b"))
    assert all(before[name] != after[name] for name in before)
    one = templates(*MINIMAL, "--set", "secretsChecksum=a,writer.secretsChecksum=b")
    assert [name for name in before if before[name] != one[name]] == ["writer"]


def test_the_writer_and_the_compactor_leave_a_lost_node_soon() -> None:
    for role, template in templates(*ALL_ROLES).items():
        tolerations = template["spec"].get("tolerations", [])
        assert [each["tolerationSeconds"] for each in tolerations] == (
            [30, 30] if role in ("writer", "compactor") else []
        )


def test_extension_points_of_all_roles_reach_every_pod() -> None:
    for role, template in templates(*FULL).items():
        spec, daemon = template["spec"], container(template)
        assert template["metadata"]["labels"]["tier"] == ("writers" if role == "writer" else "data")
        assert template["metadata"]["annotations"]["example.com/profile"] == "on"
        assert template["metadata"]["annotations"]["checksum/secrets"] == "rotation-3"
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert {"key": "storage", "operator": "Exists"} in spec["tolerations"]
        assert spec["priorityClassName"] == ("batch" if role == "worker" else "storage")
        assert spec["dnsConfig"]["options"] == [{"name": "ndots", "value": "2"}]
        assert [each["name"] for each in spec["initContainers"]] == ["wait"]
        assert [each["name"] for each in spec["containers"]] == [role, "logs"]
        assert daemon["args"][-1] == "--set=log.level=debug"
        assert {"name": "TZ", "value": "UTC"} in daemon["env"]
        assert daemon["envFrom"][0]["configMapRef"]["name"] == "proxy"
        assert {"certificates"} <= {each["name"] for each in spec["volumes"]}
        assert {"certificates"} <= {each["name"] for each in daemon["volumeMounts"]}
        assert daemon["startupProbe"]["failureThreshold"] == (240 if role == "writer" else 120)


OVERRIDES = """
compactor:
  extraEnv: [{name: A, value: own}]
  lifecycle: {preStop: null}
  podSecurityContext: {fsGroup: null}
  securityContext: {capabilities: null}
  probes: {liveness: {httpGet: null, exec: {command: ["true"]}}, startup: {periodSeconds: 9}}
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
"""


def test_a_role_overrides_and_removes(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(OVERRIDES)
    pods = templates(*MINIMAL, "-f", str(file))
    spec, daemon = pods["compactor"]["spec"], container(pods["compactor"])
    assert "fsGroup" not in spec["securityContext"]
    assert spec["securityContext"]["runAsUser"] == 10001
    assert "capabilities" not in daemon["securityContext"]
    assert "lifecycle" not in daemon
    assert daemon["livenessProbe"]["exec"] == {"command": ["true"]}
    assert "httpGet" not in daemon["livenessProbe"]
    assert daemon["startupProbe"]["periodSeconds"] == 9
    assert daemon["startupProbe"]["failureThreshold"] == 120
    assert spec["topologySpreadConstraints"][0]["topologyKey"] == "zone"
    assert "fsGroup" in pods["writer"]["spec"]["securityContext"]
    assert "lifecycle" in container(pods["writer"])


def cache_of(template: Manifest) -> Manifest:
    (found,) = [each for each in template["spec"]["volumes"] if each["name"] == "cache"]
    return {name: value for name, value in found.items() if name != "name"}


def test_volumes_of_caches() -> None:
    pods = templates(*FULL)
    assert cache_of(pods["writer"]) == {"persistentVolumeClaim": {"claimName": "writer-cache"}}
    claim = cache_of(pods["reader"])["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "20Gi")
    assert cache_of(pods["worker"]) == {"emptyDir": {"sizeLimit": "10Gi"}}
    assert cache_of(pods["gc"]) == {"emptyDir": {}}


def test_workers_follow_the_backlog() -> None:
    scaled = "worker.autoscaling.enabled=true,worker.autoscaling.backlog.enabled=true"
    hpa = render(*MINIMAL, "--set", scaled)["HorizontalPodAutoscaler", "worker"]["spec"]
    cpu, backlog = hpa["metrics"]
    assert cpu["resource"]["name"] == "cpu"
    assert backlog["external"]["metric"]["name"] == "slatedb_compactor_backlog_jobs"
    assert backlog["external"]["metric"]["selector"]["matchLabels"] == {"namespace": "default", "db": "orders"}
    assert backlog["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    (only,) = render(*MULTI)["HorizontalPodAutoscaler", "users-worker"]["spec"]["metrics"]
    assert only["external"]["metric"]["selector"]["matchLabels"]["db"] == "users"


def test_workers_follow_a_query_of_keda() -> None:
    objects = render(*FULL)
    assert ("HorizontalPodAutoscaler", "worker") not in objects
    assert "replicas" not in objects["Deployment", "worker"]["spec"]
    scaled = objects["ScaledObject", "worker"]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "r-shale-worker"}
    (trigger,) = scaled["triggers"]
    assert trigger["type"] == "prometheus"
    assert trigger["metadata"] == {
        "serverAddress": "http://prometheus.monitoring:9090",
        "query": 'max(slatedb_compactor_backlog_jobs{namespace="storage", db="orders"})',
        "threshold": "1",
    }


def test_ways_to_the_writer_from_outside() -> None:
    objects = render(*FULL)
    (rule,) = objects["Ingress", "writer"]["spec"]["rules"]
    assert rule["host"] == "orders.example.com"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "r-shale-writer", "port": {"name": "http"}}
    (route,) = objects["HTTPRoute", "writer"]["spec"]["rules"]
    assert route["backendRefs"] == [{"name": "r-shale-writer", "port": 8080}]
    admin = objects["Service", "writer-admin"]["spec"]
    assert (admin["type"], [port["name"] for port in admin["ports"]]) == ("ClusterIP", ["admin"])


def test_each_database_has_its_daemons_and_each_store_a_gc() -> None:
    objects = render(*MULTI)
    pods = pod_templates(objects)
    collectors = sorted(name for name in pods if name.startswith("gc-"))
    shared = sorted(name for name in pods if name.startswith("worker-"))
    assert (len(collectors), len(shared)) == (2, 2)
    databases = ("orders", "carts", "users", "events")
    assert set(pods) - {*collectors, *shared} == {
        *(f"{name}-{role}" for name in databases for role in ("writer", "compactor")),
        "orders-reader",
        "orders-writer-standby",
        "users-worker",
    }
    assert {"orders-writer", "users-writer", "events-writer"} <= set(of_kind(objects, "Service"))
    configs = [yaml.safe_load(objects["ConfigMap", name]["data"]["config.yaml"]) for name in collectors]
    (several,) = [each for each in configs if each.get("gc")]
    assert several["database"] == {"alias": "orders", "url": "s3://bucket/shop/orders", "wal_store": "s3://log"}
    assert several["gc"] == {
        "databases": ["shop/carts", "shop/users"],
        "database_aliases": {"shop/carts": "carts", "shop/users": "users"},
    }
    assert "writer" not in several
    (alone,) = [each for each in configs if not each.get("gc")]
    assert alone["database"]["url"] == "s3://archive/events"
    names = {name: set(secrets_of(pods[name])) for name in collectors}
    assert (
        sorted(map(sorted, names.values())) == [["archive-credentials", "shale-admin", "shale-token"]]
        or ["archive-credentials" in each for each in names.values()].count(True) == 1
    )


def test_a_database_overrides_its_roles_and_settings() -> None:
    objects = render(*MULTI)
    pods = pod_templates(objects)
    assert container(pods["orders-writer"])["resources"]["requests"]["cpu"] == "2"
    assert container(pods["users-writer"])["resources"]["requests"]["cpu"] == "1"
    assert objects["Deployment", "orders-reader"]["spec"]["replicas"] == 3
    config = yaml.safe_load(objects["ConfigMap", "orders"]["data"]["config.yaml"])
    assert config["writer"] == {"flush_interval": "50ms"}
    assert config["compression_codec"] == "zstd"
    assert "archive-credentials" in secrets_of(pods["events-compactor"])
    assert "archive-credentials" not in secrets_of(pods["events-writer"])
    assert "archive-credentials" not in secrets_of(pods["orders-writer"])
    assert "--no-embedded-worker" in container(pods["users-compactor"])["args"]
    own = render(*MULTI, "--set", "databases[0].compactor.embeddedWorker=true")
    assert "--no-embedded-worker" not in container(pod_templates(own)["orders-compactor"])["args"]


def test_databases_of_one_store_share_one_gc() -> None:
    two = "databases[0].name=a,databases[0].url=s3://b/a,databases[1].name=b,databases[1].url=s3://b/b"
    objects = render("--set", two)
    assert "gc" in of_kind(objects, "Deployment")
    config = yaml.safe_load(objects["ConfigMap", "gc"]["data"]["config.yaml"])
    assert (config["database"]["url"], config["gc"]["databases"]) == ("s3://b/a", ["b"])
    assert "made of databases" in refusal("--set", two, "--set", "settings.gc.databases={c}")


@pytest.mark.parametrize("databases", [MINIMAL, MULTI])
def test_a_gc_has_neither_keys_nor_their_setting(databases: tuple[str, ...]) -> None:
    """With the setting, but without the file, each command in its pod would end."""
    objects = render(*databases, "--set", "encryption.existingSecret=keys")
    for name, template in pod_templates(objects).items():
        if template["metadata"]["labels"]["app.kubernetes.io/component"] == "gc":
            volumes = {each["name"]: each for each in template["spec"]["volumes"]}
            assert "encryption" not in volumes
            assert volumes["config"]["configMap"]["name"] == f"r-shale-{name}"
            config = yaml.safe_load(objects["ConfigMap", name]["data"]["config.yaml"])
            assert "encryption" not in config
            assert config["database"]["url"]


def test_a_compactor_fences_another_one_only_if_told_to() -> None:
    assert container(templates(*MINIMAL)["compactor"])["args"] == ["compactor"]
    told = templates(*MINIMAL, "--set", "compactor.takeOver=true")
    assert container(told["compactor"])["args"] == ["compactor", "--take-over"]
