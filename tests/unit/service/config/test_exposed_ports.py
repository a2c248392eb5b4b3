"""A port that other machines reach is protected, or the daemon does not start."""

from pathlib import Path

import pytest

from shale.service.config.access.exposed_ports import is_loopback
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale_cli.framework.daemons import DAEMONS, settings_class
from shale_cli.framework.settings import CommandSettings

URL = "--url=memory:///orders"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1")),
        *((host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "writer.example")),
    ],
)
def test_addresses_that_only_this_machine_reaches(host: str, local: bool) -> None:
    assert is_loopback(host) == local


@pytest.mark.parametrize("role", DAEMONS)
def test_every_daemon_names_the_setting_the_address_and_the_ways_out(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHALE_ADMIN__HOST", "0.0.0.0")
    with pytest.raises(SettingsError) as refused:
        load_settings(settings_class(role), [URL])
    (problem,) = refused.value.problems
    for words in ("admin.host", "0.0.0.0", "tokens.admin", "127.0.0.1", "auth.insecure", "SHALE_ADMIN__HOST"):
        assert words in problem
    monkeypatch.setenv("SHALE_ADMIN__REQUIRE_TOKEN", "true")
    assert load_settings(settings_class(role), [URL]).settings.admin.host == "0.0.0.0", (
        "closed: health and metrics only"
    )
    monkeypatch.delenv("SHALE_ADMIN__REQUIRE_TOKEN")
    monkeypatch.setenv("SHALE_TOKENS__ADMIN", "a")
    load_settings(settings_class(role), [URL])


@pytest.mark.parametrize("role", ["writer", "reader"])
def test_data_ports_need_a_token_each(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, hosts = settings_class(role), ["--set=http.host=0.0.0.0", "--set=resp.host=10.0.0.1"]
    with pytest.raises(SettingsError, match=r"tokens\.write \(or http\.bearer_token\)") as refused:
        load_settings(model, [URL, *hosts])
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["http.host"], "resp is off"
    hosts.append("--set=resp.enabled=true")
    with pytest.raises(SettingsError) as refused:
        load_settings(model, [URL, *hosts])
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["http.host", "resp.host"]
    monkeypatch.setenv("SHALE_RESP__BEARER_TOKEN", "r")
    with pytest.raises(SettingsError) as refused:
        load_settings(model, [URL, *hosts])
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["http.host"]
    monkeypatch.setenv("SHALE_TOKENS__READ", "t")
    load_settings(model, [URL, *hosts])


def test_it_may_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_AUTH__INSECURE", "true")
    load_settings(settings_class("writer"), [URL, "--set=http.host=0.0.0.0", "--set=admin.host=::"])


@pytest.mark.parametrize(
    ("options", "host", "local"),
    [
        ((), "127.0.0.1", True),
        ((), "localhost", True),
        ((), "10.0.0.1", False),
        (("--set=auth.insecure=true",), "127.0.0.1", False),
        (("--set=tls.cert_file=a.pem", "--set=tls.key_file=b.pem"), "127.0.0.1", False),
    ],
)
def test_a_port_is_local_in_clear_text_on_a_loopback_address(options: tuple[str, ...], host: str, local: bool) -> None:
    settings = load_settings(settings_class("writer"), [URL, *options]).settings
    assert settings.is_local(host) == local


def test_a_command_in_the_container_of_a_daemon_opens_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHALE_ADMIN__HOST", "0.0.0.0")
    load_settings(CommandSettings, [URL])
