"""Variables and secret files that no daemon knows: a misspelt one would leave a port open without a word."""

from pathlib import Path

import pytest

from shale.service.config.config_sources import all_settings
from shale.service.config.settings import load_settings
from shale_cli.framework.daemons import DAEMONS, settings_class
from shale_gc.settings import GcSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings

URL = ["--url", "memory:///orders"]
MISSPELT = (
    "SHALE_TOKENS__WIRTE",
    "SHALE_TOKENS",
    "SHALE_ADMIN__REQUIRE_TOKN",
    "SHALE_TLS__CLIENT_CA_FIL",
    "SHALE_HTTP__BEARER_TOKE",
    "SHALE_AUDIT__FIEL",
)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("SHALE_CONFIG", "SHALE_URL"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "secrets"
    directory.mkdir()
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(directory))
    return directory


@pytest.mark.parametrize("variable", MISSPELT)
def test_a_misspelt_variable_of_a_section_of_this_daemon_is_told(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")
    (told,) = load_settings(WriterSettings, URL).unknown_env
    assert told.startswith(variable)


def test_a_misspelt_secret_file_is_told(secrets: Path) -> None:
    for name in ("tokens__wirte", "writer__tokens__wirte", "SHALE_TOKENS__WIRTE"):
        (secrets / name).write_text("S3CRET")
    told = load_settings(WriterSettings, URL).unknown_env
    assert [each.partition(";")[0] for each in told] == [
        f"secret file {secrets / name}" for name in ("SHALE_TOKENS__WIRTE", "tokens__wirte", "writer__tokens__wirte")
    ]
    assert "did you mean tokens__write" in told[1]
    assert "S3CRET" not in str(told)


def test_files_of_other_programs_and_daemons_are_not_told(secrets: Path) -> None:
    for name in ("db_password", "tls.key", ".tokens__write.swp", "reader__tokens__wirte", "standby__token"):
        (secrets / name).write_text("x")
    for settings in (WriterSettings, GcSettings):
        assert load_settings(settings, URL).unknown_env == ()
    (told,) = load_settings(ReaderSettings, URL).unknown_env
    assert "reader__tokens__wirte" in told


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_setting_that_another_daemon_has_in_the_same_section_is_not_told(
    daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings_class(daemon)
    known = set(all_settings(own))
    others = {names for each in DAEMONS for names in all_settings(settings_class(each))} - known
    shared = {names for names in others if len(names) > 1}
    assert shared
    for names in shared:
        monkeypatch.setenv("SHALE_" + "__".join(names).upper(), "x")
    assert load_settings(own, URL).unknown_env == ()
