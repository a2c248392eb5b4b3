"""The local stack: mounted files exist, memory fits, alerts arrive, and Grafana finds dashboards and data."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from deploy.compose import alert_receiver, make_tokens
from shale.service.config.sections import DatabaseSection
from shale.sst.budget import DEFAULT_CAPACITY_BYTES
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings
from tests.paths import REPOSITORY

MIB = 1024 * 1024

TEXT = (REPOSITORY / "docker-compose.yml").read_text()
STACK: dict[str, Any] = yaml.safe_load(TEXT)
TLS_TEXT = (REPOSITORY / "deploy" / "compose" / "tls.yml").read_text()
SERVICES: dict[str, Any] = STACK["services"]
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def mounts(service: str) -> dict[str, str]:
    """Return the mounted files by their target."""
    parts = [str(each).split(":") for each in SERVICES[service].get("volumes", ())]
    return {target: source for source, target, *_ in parts}


def provisioned(kind: str) -> Any:
    """Return the only file of its kind from the path of the container."""
    source = mounts("grafana")[f"/etc/grafana/provisioning/{kind}"]
    (file,) = (REPOSITORY / source).glob("*.yaml")
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_mounts_what_is_there_and_listens_to_this_machine_only(service: str) -> None:
    for source in mounts(service).values():
        assert (REPOSITORY / source).exists() if source.startswith(".") else source in STACK["volumes"]
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[service].get("ports", ()))
    assert all(each in SERVICES for each in SERVICES[service].get("depends_on", ()))
    assert SERVICES[service]["init"]
    assert SERVICES[service]["restart"] == "on-failure:5"
    assert "mem_limit" in SERVICES[service]


def test_every_variable_has_a_default_that_the_example_names() -> None:
    used = set(VARIABLE.findall(TEXT + TLS_TEXT))
    example = re.findall(r"^#(\w+)=(.*)$", (REPOSITORY / ".env.example").read_text(), re.MULTILINE)
    assert used == set(example)
    assert len(example) == len(dict(example))


def test_every_variable_has_one_default() -> None:
    used = VARIABLE.findall(TEXT + TLS_TEXT)
    assert len(set(used)) == len(dict(used))
    example = (REPOSITORY / ".env.example").read_text()
    assert [f"#{name}={default}\n" for name, default in used if f"#{name}={default}\n" not in example] == []


def test_the_store_keeps_its_objects_in_the_volume_and_is_pinned() -> None:
    store = SERVICES["store"]
    assert mounts("store") == {"/data": "store"}
    assert store["command"][0].rstrip().endswith("posix /data")
    for name, service in SERVICES.items():
        image = VARIABLE.sub(lambda match: match[2], service["image"])
        assert re.search(r":(local|v?\d[\d.]+)(@sha256:[0-9a-f]{64})?$", image), f"{name}: {image} has no version"


@pytest.mark.parametrize(("endpoint", "starts"), [("http://store:8333", True), ("https://s3.example", False)])
def test_the_store_starts_only_where_daemons_use_it(endpoint: str, starts: bool, tmp_path: Path) -> None:
    program = tmp_path / "versitygw"
    program.write_text('#!/bin/sh\necho "started $*"\n')
    program.chmod(0o755)
    command = SERVICES["store"]["command"][0].replace("$$", "$").replace("/data", str(tmp_path / "data"))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ENDPOINT": endpoint}
    done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("started --port :8333" if starts else "not needed")
    assert (tmp_path / "data" / "shale").is_dir() == starts


def test_the_store_may_be_left_out_and_otherwise_ends_after_the_daemons() -> None:
    """A profile would not allow that: compose refuses a dependency outside of the chosen profiles."""
    assert SERVICES["store"]["scale"] == "${STORE:-1}"
    assert "profiles" not in SERVICES["store"]
    for daemon in ("writer", "compactor", "worker", "gc", "reader"):
        assert "store" in SERVICES[daemon]["depends_on"]


def test_the_memory_of_writer_and_reader_fits_their_defaults() -> None:
    """The formulas of docs/how-to/operate/sizing.md, with a sixth to spare."""
    database = DatabaseSection(url="file:///data/db")
    writer, reader = WriterSettings(database=database), ReaderSettings(database=database)
    assert reader.block_cache_bytes is None, "then it is the cache of the process"
    rows = 80 * MIB + 2 * writer.max_unflushed_bytes
    for name, cache, bodies in (
        ("writer", writer.block_cache_bytes, writer.http.max_inflight_bytes),
        ("reader", DEFAULT_CAPACITY_BYTES, reader.http.max_inflight_bytes),
    ):
        needed = rows + cache + bodies
        assert needed * 7 // 6 < limit(name) < needed * 5 // 4


def limit(service: str) -> int:
    found = VARIABLE.fullmatch(SERVICES[service]["mem_limit"])
    assert found is not None
    return int(found[2].removesuffix("g")) * 1024 * MIB


def test_daemons_wait_for_tokens_and_have_their_hashes() -> None:
    daemons = [name for name, each in SERVICES.items() if each.get("command", [""])[0] == name]
    assert len(daemons) == 5
    for name in (*daemons, "spark-driver"):
        environment = SERVICES[name]["environment"]
        mounted = mounts(name)
        assert SERVICES[name]["depends_on"]["tokens"] == {"condition": "service_completed_successfully"}
        assert mounted[environment["SHALE_SECRETS_DIR"]] == "secrets"
        assert mounted[str(Path(environment["SHALE_ADMIN_TOKEN_FILE"]).parent)] == "tokens"
        assert all(str(each).endswith(":ro") for each in SERVICES[name]["volumes"])
    assert mounts("tokens")[str(make_tokens.HASHES)] == "secrets"
    assert mounts("tokens")[str(make_tokens.TOKENS)] == mounts("demo-load")[str(make_tokens.TOKENS)] == "tokens"
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    for folder in (make_tokens.HASHES, make_tokens.TOKENS):
        assert dockerfile.count(f"chown 10001:10001 /var/cache/shale {make_tokens.TOKENS} {make_tokens.HASHES}") == 2, (
            f"a new volume has the owner of {folder} in the image"
        )


def test_alerts_go_to_the_receiver() -> None:
    scraped = yaml.safe_load((REPOSITORY / mounts("prometheus")["/etc/prometheus/prometheus.yml"]).read_text())
    (sent,) = scraped["alerting"]["alertmanagers"]
    (target,) = sent["static_configs"][0]["targets"]
    assert target.partition(":")[0] in SERVICES
    assert SERVICES[target.partition(":")[0]]["ports"][0].endswith(target.partition(":")[2])
    routed = yaml.safe_load((REPOSITORY / mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"]).read_text())
    (receiver,) = routed["receivers"]
    assert routed["route"]["receiver"] == receiver["name"]
    url = urlsplit(receiver["webhook_configs"][0]["url"])
    assert (url.hostname in SERVICES, url.port) == (True, alert_receiver.PORT)


def test_the_slow_burn_of_a_budget_is_not_told_beside_the_fast_one() -> None:
    routed = yaml.safe_load((REPOSITORY / mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"]).read_text())
    alerts = {file.stem for file in (REPOSITORY / "docs" / "runbooks").glob("*BudgetBurn*.md")}
    fast = {name.removesuffix("Slow") for name in alerts}
    pairs = {(each["source_matchers"][0], each["target_matchers"][0]) for each in routed["inhibit_rules"]}
    assert pairs == {(f'alertname="{name}"', f'alertname="{name}Slow"') for name in fast}
    assert {f"{name}{burn}" for name in fast for burn in ("", "Slow")} == alerts


def test_programs_of_the_stack_exist() -> None:
    for service in SERVICES.values():
        for each in service.get("entrypoint", ()):
            if (path := str(each)).startswith("/compose/"):
                assert (REPOSITORY / "deploy" / path.removeprefix("/")).exists()


def test_grafana_shows_our_dashboards() -> None:
    (provider,) = provisioned("dashboards")["providers"]
    options = provider["options"]
    assert (provider["type"], provider["allowUiUpdates"], options["foldersFromFilesStructure"]) == ("file", False, True)
    assert "folder" not in provider, "Grafana refuses one beside foldersFromFilesStructure"
    folders = {target: source for target, source in mounts("grafana").items() if target.startswith(options["path"])}
    assert folders == {f"{options['path']}/SlateDB": "./deploy/observability/dashboards"}
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    shown = REPOSITORY / folders[str(home.parent)] / home.name
    assert json.loads(shown.read_text())["uid"] == "slatedb-overview"


def test_dashboards_have_one_source_to_choose_which_is_our_prometheus() -> None:
    (source,) = provisioned("datasources")["datasources"]
    assert (source["access"], source["isDefault"], source["editable"]) == ("proxy", True, False)
    url = urlsplit(source["url"])
    assert url.hostname in SERVICES
    assert SERVICES[url.hostname]["ports"][0].endswith(f":{url.port}")
    scraped = yaml.safe_load((REPOSITORY / mounts(url.hostname)["/etc/prometheus/prometheus.yml"]).read_text())
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]
    files = sorted((REPOSITORY / "deploy" / "observability" / "dashboards").glob("*.json"))
    assert len(files) > 5
    for file in files:
        board = json.loads(file.read_text())
        variable = board["templating"]["list"][0]
        assert (variable["type"], variable["query"]) == ("datasource", source["type"])
        named = {each["datasource"]["uid"] for each in board["panels"] if "datasource" in each}
        assert named == {f"${{{variable['name']}}}"}


def test_anonymous_users_have_read_access_only() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_prometheus_scrapes_every_daemon() -> None:
    scraped = yaml.safe_load((REPOSITORY / mounts("prometheus")["/etc/prometheus/prometheus.yml"]).read_text())
    jobs = scraped["scrape_configs"]
    targets = {target for job in jobs for each in job.get("static_configs", ()) for target in each["targets"]}
    names = {name for job in jobs for each in job.get("dns_sd_configs", ()) for name in each["names"]}
    daemons = {name for name, each in SERVICES.items() if each.get("command") and each["command"][0] == name}
    assert {target.partition(":")[0] for target in targets} | names == daemons
    assert {target.partition(":")[2] for target in targets} == {"9464"}
