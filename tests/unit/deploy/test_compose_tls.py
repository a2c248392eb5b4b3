"""The file that adds TLS to the local stack: daemons, and everything that asks them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shale.service.config.secret_url import url_text
from shale.service.config.settings import load_settings
from shale_cli.framework.daemons import DAEMONS, settings_class
from shale_writer.settings import WriterSettings
from tests.external_tools import require_tool
from tests.paths import REPOSITORY

from .test_compose import SERVICES, VARIABLE

ADDED: dict[str, Any] = yaml.safe_load((REPOSITORY / "deploy" / "compose" / "tls.yml").read_text())["services"]
FOLDER = "/etc/shale/tls"
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"


def mounts(service: str) -> dict[str, str]:
    """Return the added files by their target."""
    parts = [VARIABLE.sub(lambda match: match[2], each).split(":") for each in ADDED[service].get("volumes", ())]
    assert all(mode == "ro" for _, _, mode in parts)
    return {target: source for source, target, _ in parts}


def test_every_daemon_has_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    daemons = {name for name, each in SERVICES.items() if each.get("command", [""])[0] in DAEMONS}
    assert daemons == {*DAEMONS, "spark-driver"}
    assert daemons <= set(ADDED) <= set(SERVICES)
    for name in daemons:
        assert mounts(name) == {FOLDER: "./tls"}
        with monkeypatch.context() as patch:
            for variable, value in ADDED[name]["environment"].items():
                patch.setenv(variable, value)
            role = SERVICES[name]["command"][0]
            loaded = load_settings(settings_class(role), ["--url", "file:///db"])
        assert loaded.unknown_env == ()
        assert (loaded.settings.tls.cert_file, loaded.settings.tls.key_file) == (
            f"{FOLDER}/tls.crt",
            f"{FOLDER}/tls.key",
        )


def test_the_address_of_the_writer_is_a_name_in_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host name is the id of its container."""
    for variable, value in ADDED["writer"]["environment"].items():
        monkeypatch.setenv(variable, value)
    settings = load_settings(WriterSettings, ["--url", "file:///db"]).settings
    assert url_text(settings.writer_endpoint) == "https://writer:8080"


def test_the_load_asks_over_tls_and_is_otherwise_the_same() -> None:
    load = ADDED["demo-load"]
    assert load["command"] == [each.replace("http://", "https://") for each in SERVICES["demo-load"]["command"]]
    assert mounts("demo-load") == {load["environment"]["SSL_CERT_FILE"]: "./tls/ca.crt"}


def test_prometheus_asks_over_tls_and_is_otherwise_the_same() -> None:
    plain, secure = (
        yaml.safe_load((PROMETHEUS / name).read_text()) for name in ("prometheus.yml", "prometheus-tls.yml")
    )
    assert mounts("prometheus")["/etc/prometheus/prometheus.yml"] == "./deploy/prometheus/prometheus-tls.yml"
    for job in secure["scrape_configs"]:
        assert job.pop("scheme") == "https"
        checked = job.pop("tls_config")
        assert mounts("prometheus")[checked.pop("ca_file")] == "./tls/ca.crt"
        assert checked == ({"server_name": "worker"} if "dns_sd_configs" in job else {})
    assert secure == plain


def test_prometheus_reads_its_file(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    file = tmp_path / "prometheus.yml"
    file.write_text((PROMETHEUS / "prometheus-tls.yml").read_text().replace("/etc/prometheus/", f"{tmp_path}/"))
    ended = subprocess.run(
        [require_tool("promtool"), "check", "config", str(file)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
