"""Options of stores from variables: the same as a daemon reads."""

from typing import ClassVar

import pytest

from shale.errors import InvalidRequestError
from shale.service.config.sections import StoreSection
from shale.service.config.settings import DaemonSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale.service.store_startup import store_options
from shale.store.environment import PREFIX, options_from, with_environment
from shale.store.options import RetryPolicy, StoreOptions

CREDENTIALS = {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret"}
VALID = [
    {},
    {"ENDPOINT": "http://localhost:9000", "REGION": "eu-central-1"},
    {**CREDENTIALS, "SESSION_TOKEN": "token"},
    {"REQUEST_TIMEOUT": "2m", "CONNECT_TIMEOUT": "250ms"},
    {"request_timeout": "7s"},
    {"MAX_RETRIES": "5", "FAIL_FAST_AUTH": "true"},
    {"FAIL_FAST_AUTH": "off"},
    {"CAS": "two-phase", "TRANSACTIONAL_URL": "sqlite:////data/records.db", "ACK_AFTER": "record"},
    {"CAS": "native", "PREFLIGHT": "false", "START_TIMEOUT": "5s", "CLOCK_CHECK_INTERVAL": "1m"},
]
INVALID = [
    ({"REQUEST_TIMEOUT": "soon"}, "REQUEST_TIMEOUT"),
    ({"REQUEST_TIMEOUT": "0s"}, "REQUEST_TIMEOUT"),
    ({"MAX_RETRIES": "-1"}, "MAX_RETRIES"),
    ({"FAIL_FAST_AUTH": "perhaps"}, "FAIL_FAST_AUTH"),
    ({"CAS": "three-phase"}, "CAS"),
    ({"CAS": "two-phase"}, "TRANSACTIONAL_URL"),
    ({"TRANSACTIONAL_URL": "sqlite:////data/records.db"}, "TRANSACTIONAL_URL"),
    ({"ACCESS_KEY_ID": "id"}, "SECRET_ACCESS_KEY"),
]


class Settings(DaemonSettings):
    """The settings of a daemon for tests."""

    ROLE: ClassVar[str] = "reader"


def of_daemon(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> StoreOptions:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return store_options(load_settings(Settings, ["--url", "memory:///orders"]).settings.store)


def named(values: dict[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{name}": value for name, value in values.items()}


@pytest.mark.parametrize("values", VALID, ids=lambda values: "+".join(values) or "none")
def test_a_program_reads_what_a_daemon_reads(values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_from(named(values) | {"HOME": "/root"}) == of_daemon(named(values), monkeypatch)


def test_every_setting_of_daemons_is_known() -> None:
    tried = {name.lower() for values in VALID for name in values}
    assert tried == set(StoreSection.model_fields)


@pytest.mark.parametrize(("values", "told"), INVALID, ids=lambda each: each if isinstance(each, str) else "")
def test_what_a_daemon_refuses_is_refused(values: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match=f"{PREFIX}.*{told}"):
        options_from(named(values))
    with pytest.raises(SettingsError):
        of_daemon(named(values), monkeypatch)


def test_an_unknown_variable_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert options_from(named({"ENDPIONT": "http://localhost:9000"})) == StoreOptions()
    assert "SHALE_STORE__ENDPIONT; did you mean endpoint?" in caplog.text


def test_no_error_tells_a_secret() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        options_from(named({"SECRET_ACCESS_KEY": "hush"}))
    assert "hush" not in str(caught.value)


def test_the_process_that_connects_adds_its_variables_where_options_travel() -> None:
    environ = named({**CREDENTIALS, "ENDPOINT": "http://localhost:9000", "REQUEST_TIMEOUT": "7s", "MAX_RETRIES": "5"})
    sent = StoreOptions(
        config={"aws_endpoint_url": "http://localhost:1"}, retry=RetryPolicy(retries_max=3), reads_environment=True
    )
    found = with_environment(sent, environ)
    assert found.config == {
        "aws_endpoint_url": "http://localhost:1", "access_key_id": "id", "secret_access_key": "secret"
    }  # fmt: skip
    assert (found.request_timeout_s, found.retry) == (7.0, sent.retry)
    assert with_environment(StoreOptions(), environ) == StoreOptions()
