"""Settings whose values are nested too deeply for Python's reader of TOML."""

import pytest

from shale.compat.slatedb import uniffi as slatedb
from shale.service.config.config_sources import command_line_value
from shale.service.config.settings import SettingsError, load_settings
from shale.service.config.spark_section import parse_conf
from shale_gc.settings import GcSettings

DEEP = "[" * 5000


@pytest.mark.parametrize("name", ["databases", "store.max_retries"])
def test_a_value_of_the_command_line_is_refused_by_name(name: str) -> None:
    assert command_line_value(DEEP) == DEEP
    with pytest.raises(SettingsError, match=f"^{name}: "):
        load_settings(GcSettings, ["--store", "memory:///", "--set", f"{name}={DEEP}"])


def test_properties_of_spark_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a table: "):
        parse_conf("{a=" * 5000)


@pytest.mark.parametrize("text", [DEEP, "9" * 5000], ids=["deep", "long"])
def test_a_variable_of_slatedb_is_text_if_it_cannot_be_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP_MANIFEST_POLL_INTERVAL", text)
    with pytest.raises(slatedb.Error.Invalid):
        slatedb.Settings.from_env("DEEP_")
