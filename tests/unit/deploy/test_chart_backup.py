"""Backups on a schedule: a CronJob for each database, whose commands take the settings and secrets of its pod."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import shale
from shale.service.config.settings import load_settings
from shale.service.exit_codes import ExitCode
from shale_cli.framework.settings import CommandSettings

from .chart import MINIMAL, VALUES, Manifest, Objects, container, manifests, of_kind, pod_templates, refusal, render
from .test_chart_network import Cluster
from .test_chart_roles import secrets_of

SWITCHED_ON = ("--set", "backup.enabled=true", "--set", "backup.schedule=@daily")
PLACE = ("--set", "backup.url=s3://other/orders")
BACKUP = (*MINIMAL, *SWITCHED_ON, *PLACE)
SEVERAL = ("--set", "databases[0].name=a,databases[0].url=s3://b/a,databases[1].name=b,databases[1].url=s3://b/b")
ENDPOINT = ("-f", str(VALUES["s3-endpoint"]))


def containers(objects: Objects, name: str = "backup") -> list[Manifest]:
    """Return the containers of a backup in the order in which they run."""
    spec = objects["CronJob", name]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def arguments(objects: Objects, name: str = "backup") -> list[list[str]]:
    return [each["args"] for each in containers(objects, name)]


def written(objects: Objects, folder: Path, config: str = "") -> dict[str, str]:
    """Write the files of the pod of a backup, and return its variables."""
    (folder / "secrets").mkdir()
    template = pod_templates(objects)["backup"]
    for paths in secrets_of(template).values():
        for path in paths:
            (folder / "secrets" / path).write_text(f"content of {path}\n")
    (folder / "backup.yaml").write_text(objects["ConfigMap", config]["data"]["backup.yaml"])
    environment = {each["name"]: each["value"] for each in container(template)["env"]}
    assert environment == {"SHALE_CONFIG": "/etc/shale/config/backup.yaml", "SHALE_SECRETS_DIR": "/etc/shale/secrets"}
    return {"SHALE_CONFIG": str(folder / "backup.yaml"), "SHALE_SECRETS_DIR": str(folder / "secrets")}


def backup_settings(objects: Objects, config: str = "") -> Any:
    return yaml.safe_load(objects["ConfigMap", config]["data"]["backup.yaml"])["backup"]


def test_a_backup_is_made_before_old_ones_are_removed() -> None:
    objects = render(*ENDPOINT)
    assert arguments(objects) == [
        ["backup", "create", "-q"],
        ["backup", "prune", "-q", "--yes", "--keep", "7", "--older-than", "30d"],
    ]
    assert [each["name"] for each in containers(objects)] == ["create", "backup"]
    spec = objects["CronJob", "backup"]["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("30 2 * * *", "Forbid")
    for each in containers(objects):
        assert not {"ports", "livenessProbe", "lifecycle"} & each.keys()
        assert each["securityContext"]["readOnlyRootFilesystem"]


def test_without_a_rule_nothing_is_removed() -> None:
    objects = render(*BACKUP, "--set", "backup.keep=0,backup.keepWal=true,backup.extraArgs={--concurrency=2}")
    assert arguments(objects) == [["backup", "create", "-q", "--keep-wal", "--concurrency=2"]]


def test_arguments_of_daemons_are_not_those_of_commands() -> None:
    objects = render(*BACKUP, "--set", "extraArgs={--set=log.level=debug}")
    assert all("--set=log.level=debug" not in each for each in arguments(objects))


def test_what_another_attempt_cannot_change_ends_the_job() -> None:
    job = render(*ENDPOINT)["CronJob", "backup"]["spec"]["jobTemplate"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    hopeless = (ExitCode.USAGE, ExitCode.DATA, ExitCode.PANIC, ExitCode.NOPERM, ExitCode.STORE_UNSAFE)
    assert [rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"]] == [
        {"containerName": name, "operator": "In", "values": [code.value for code in hopeless]}
        for name in ("create", "backup")
    ]


def test_commands_take_the_settings_and_secrets(tmp_path: Path) -> None:
    objects = render(*ENDPOINT)
    template = pod_templates(objects)["backup"]
    assert set(secrets_of(template)) == {"minio-readers", "backup-credentials"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in written(objects, tmp_path).items():
            patch.setenv(name, value)
        settings = load_settings(CommandSettings, []).settings
    assert (str(settings.database.url), str(settings.backup.url)) == ("s3://bucket/orders", "s3://backups/orders")
    access, place = settings.store, settings.backup.store
    assert place is not None
    assert (str(access.endpoint), str(place.endpoint)) == ("http://minio.storage:9000", "https://backups.example:9443")
    for section, name in ((access, "store"), (place, "backup__store")):
        assert section.access_key_id is not None
        assert section.secret_access_key is not None
        assert section.access_key_id.get_secret_value() == f"content of {name}__access_key_id"
        assert section.secret_access_key.get_secret_value() == f"content of {name}__secret_access_key"


def test_without_access_of_its_own_that_of_the_database_is_used() -> None:
    assert backup_settings(render(*BACKUP)) == {"url": "s3://other/orders"}
    assert backup_settings(render(*BACKUP, "--set", "backup.region=eu-west-1"))["store"] == {"region": "eu-west-1"}


def test_a_store_of_another_kind_has_access_of_its_own(tmp_path: Path) -> None:
    """Neither the keys nor the endpoint of the database are sent to it."""
    store = ("--set", "objectStore.endpoint=http://minio:9000,objectStore.existingSecret=minio")
    objects = render(*MINIMAL, *store, *SWITCHED_ON, "--set", "backup.url=gs://other/orders")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in written(objects, tmp_path).items():
            patch.setenv(name, value)
        place = load_settings(CommandSettings, []).settings.backup.store
    assert place is not None
    assert (place.endpoint, place.access_key_id) == (None, None)
    labels = pod_templates(objects)["backup"]["metadata"]["labels"]
    assert Cluster(objects).reaches(labels, 443)


def test_a_backup_has_no_keys_and_no_tokens() -> None:
    """Objects are copied as they are, and a command has no port."""
    secrets = "encryption.existingSecret=keys,auth.existingSecret=tokens,auth.admin.existingSecret=admin"
    objects = render(*BACKUP, "--set", secrets, "--set", "settings.encryption.key_file=/keys")
    spec = pod_templates(objects)["backup"]["spec"]
    assert [each["name"] for each in spec["volumes"]] == ["config", "tmp", "cache"]
    assert "encryption" not in objects["ConfigMap", ""]["data"]["backup.yaml"]
    assert "encryption" in objects["ConfigMap", ""]["data"]["config.yaml"]


def test_each_database_has_a_schedule_and_a_place() -> None:
    own = ("--set", "databases[1].backup.schedule=@weekly,databases[1].backup.url=gs://own/place")
    objects = render(*SEVERAL, *SWITCHED_ON, "--set", "backup.url=s3://other/all/", *own)
    jobs = of_kind(objects, "CronJob")
    assert {name: each["spec"]["schedule"] for name, each in jobs.items()} == {
        "a-backup": "@daily",
        "b-backup": "@weekly",
    }
    assert backup_settings(objects, "a") == {"url": "s3://other/all/a"}
    assert backup_settings(objects, "b") == {"url": "gs://own/place", "store": {"endpoint": None}}
    one = render(*SEVERAL, "--set", "databases[1].backup.enabled=true", *SWITCHED_ON[2:], *PLACE)
    assert set(of_kind(one, "CronJob")) == {"b-backup"}
    assert "backup.yaml" not in one["ConfigMap", "a"]["data"]


def test_names_fit_a_cronjob() -> None:
    """Two databases whose names differ at the end only have two names."""
    names = "databases[0].name={0}a,databases[0].url=s3://b/a,databases[1].name={0}b,databases[1].url=s3://b/b"
    objects = manifests("--set", names.replace("{0}", "o" * 39), *SWITCHED_ON, *PLACE)
    found = [each["metadata"]["name"] for each in objects if each["kind"] == "CronJob"]
    assert len(set(found)) == 2
    assert max(len(name) for name in found) <= 52


def test_both_stores_are_reachable() -> None:
    objects = render(*ENDPOINT)
    cluster = Cluster(objects)
    labels = pod_templates(objects)["backup"]["metadata"]["labels"]
    assert {port for port in (443, 8080, 9000, 9443) if cluster.reaches(labels, port)} == {9000, 9443}
    assert "169.254" not in str(cluster.policies)
    identity = render(*ENDPOINT, "--set", "backup.existingSecret=")
    assert "169.254" in str(Cluster(identity).policies)
    assert Cluster(identity).reaches(labels, 443)


def test_a_backup_has_an_identity_of_its_own_and_is_not_scraped() -> None:
    own = ("--set", "backup.serviceAccount.create=true", "--set", "metrics.podMonitor.enabled=true")
    objects = render(*BACKUP, *own)
    assert pod_templates(objects)["backup"]["spec"]["serviceAccountName"] == "r-shale-backup"
    assert ("ServiceAccount", "backup") in objects
    (unscraped,) = objects["PodMonitor", ""]["spec"]["selector"]["matchExpressions"]
    assert unscraped["values"] == ["backup", "test"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (SWITCHED_ON, "backup.url: where"),
        (("--set", "backup.enabled=true", *PLACE), "backup.schedule: when"),
        ((*SWITCHED_ON, "--set", "backup.url=s3://bucket/orders/backups"), "below the database"),
        ((*SWITCHED_ON, "--set", "backup.url=s3://bucket/orders/"), "below the database"),
    ],
)
def test_mistakes_are_refused(values: tuple[str, ...], complaint: str) -> None:
    assert complaint in refusal(*MINIMAL, *values)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_commands_of_the_pod_make_and_remove_backups(tmp_path: Path) -> None:
    """On directories, with the files and variables of the pod; the database is encrypted, and the pod has no key."""
    key = tmp_path / "keys"
    key.write_text(f"first {'ab' * 32}\n")
    database, place = tmp_path / "databases" / "orders", tmp_path / "backups" / "orders"
    async with shale.Db.open(database.as_uri(), block_transformer=shale.AesGcm.from_file(str(key))) as db:
        await db.put(b"k", b"v")
    urls = ("--set", f"database.url={database.as_uri()},backup.url={place.as_uri()},backup.keep=1")
    objects = render(*urls, *SWITCHED_ON, "--set", "encryption.existingSecret=keys")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHALE_")}
    environment = {**kept, **written(objects, tmp_path)}

    def command(*words: str) -> Any:
        ended = subprocess.run(
            [sys.executable, "-m", "shale_cli", *words, "-o", "json"],
            env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    before = files_below(database)
    create, prune = arguments(objects)
    first, second, pruned = (command(*words) for words in (create, create, prune))
    assert (pruned["removed"], pruned["kept"]) == ([first["id"]], [second["id"]])
    after = files_below(database)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {name.partition("/")[0] for name in changed} == {"manifest"}, "the rights of a reader are enough"
