"""The local stack: mounted files exist, and Grafana finds dashboards and data."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.paths import REPOSITORY

TEXT = (REPOSITORY / "docker-compose.yml").read_text()
STACK: dict[str, Any] = yaml.safe_load(TEXT)
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
    assert SERVICES[service]["init"]
    assert SERVICES[service]["restart"] == "on-failure:5"
    assert "mem_limit" in SERVICES[service]


def test_every_variable_has_a_default_that_the_example_names() -> None:
    used = set(VARIABLE.findall(TEXT))
    example = re.findall(r"^#(\w+)=(.*)$", (REPOSITORY / ".env.example").read_text(), re.MULTILINE)
    assert used == set(example)
    assert len(example) == len(dict(example))


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
