"""Settings: both packages read the same files, variables and JSON with the same result."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours

DEFAULTS = json.loads(wheel.Settings.default().to_json_string())


def outcome(api: Any, make: Callable[[Any], Any]) -> tuple[str, Any]:
    """Return the settings as JSON text, or the kind of the error."""
    try:
        return "ok", make(api).to_json_string()
    except api.Error as error:
        return "error", type(error).__name__


def assert_alike(make: Callable[[Any], Any]) -> None:
    assert outcome(ours, make) == outcome(wheel, make)


def fields(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in table.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from fields(value, (*path, name))


FIELDS = [".".join(path) for path in fields(DEFAULTS)]
VALUES = [
    None,
    True,
    0,
    7,
    -1,
    1.5,
    "3s",
    "nonsense",
    "Lz4",
    "Info",
    [],
    {},
    {"min_compaction_sources": "3"},
    2**32,
    2**64,
]


def after_setting(key: str, value_json: str) -> Callable[[Any], Any]:
    def make(api: Any) -> Any:
        settings = api.Settings.default()
        settings.set(key, value_json)
        return settings

    return make


def test_the_defaults_are_the_same_text() -> None:
    assert_alike(lambda api: api.Settings.default())


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_takes_and_refuses_the_same(field: str) -> None:
    for value in VALUES:
        assert_alike(after_setting(field, json.dumps(value)))


@pytest.mark.parametrize("field", FIELDS)
def test_the_same_fields_may_be_left_out(field: str) -> None:
    settings = copy.deepcopy(DEFAULTS)
    *tables, last = field.split(".")
    table = settings
    for name in tables:
        table = table[name]
    del table[last]
    assert_alike(lambda api: api.Settings.from_json_string(json.dumps(settings)))


DURATIONS = (
    "0s,1ms,999ms,1s,1001ms,90s,1m30s,1h 3s,1h3m,1h+5m,2d,1w,1y,3mon,1500us,5ns,100, 1s ,, ,1.5s,-1s,1 day,2hours,s,1s2"
    ",1 s,1min,1S"
)


@pytest.mark.parametrize("text", DURATIONS.split(","))
def test_durations_are_read_and_written_alike(text: str) -> None:
    assert_alike(after_setting("flush_interval", json.dumps(text)))


KEYS = {
    "": "1",
    "a..b": "1",
    ".": "1",
    "flush_interval": "{",
    "l0_max_ssts": "NaN",
    "flush_interval.x": "1",
    "unknown": "1",
    "unknown.table": "1",
    "compactor_options.unknown": "1",
}


@pytest.mark.parametrize(("key", "value_json"), KEYS.items())
def test_keys_are_followed_alike(key: str, value_json: str) -> None:
    assert_alike(after_setting(key, value_json))


@pytest.mark.parametrize("text", ["", "{}", "[]", "5", "null", '{"flush_interval": "1s"}', "{"])
def test_json_that_is_no_settings_is_refused(text: str) -> None:
    assert_alike(lambda api: api.Settings.from_json_string(text))


FILES = {
    "a.toml": 'flush_interval = "5s"\nunknown = 1\n[compactor_options]\npoll_interval = "7s"\n',
    "b.yaml": "flush_interval: 5s\ncompactor_options: null\n",
    "c.yml": "garbage_collector_options: {manifest_options: {min_age: 9s}}\n",
    "d.json": '{"l0_max_ssts": 9, "compression_codec": "Zstd"}',
    "e.json": '{"l0_max_ssts": "x"}',
    "f.json": "{",
    "g.toml": "= 1",
    "h.ini": "",
    "i": "",
    "j.yaml": "",
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_alike(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(FILES[name])
    assert_alike(lambda api: api.Settings.from_file(str(file)))


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert_alike(lambda api: api.Settings.from_file(str(tmp_path / "missing.toml")))


@pytest.mark.parametrize(
    "variables",
    [
        {"FLUSH_INTERVAL": "9s", "L0_MAX_SSTS": "11", "WAL_ENABLED": "false"},
        {"COMPACTOR_OPTIONS.POLL_INTERVAL": "8s", "flush_interval": "3s"},
        {"COMPACTOR_OPTIONS__POLL_INTERVAL": "8s", "UNKNOWN": "1"},
        {"GARBAGE_COLLECTOR_OPTIONS": '{manifest_options={interval="1s",min_age="2s"}}'},
        {"FLUSH_INTERVAL": "nonsense"},
        {"FLUSH_INTERVAL": "5"},
        {"FLUSH_INTERVAL": '"5"'},
    ],
)
def test_variables_are_read_alike(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SlateDb.toml").write_text("l0_max_ssts = 77\n")
    for name, value in variables.items():
        monkeypatch.setenv(f"SHALE_TEST_{name}", value)
        monkeypatch.setenv(f"SLATEDB_{name}", value)

    def over_others(api: Any) -> Any:
        others = api.Settings.default()
        others.set("l0_max_ssts", "55")
        return api.Settings.from_env_with_default("SHALE_TEST_", others)

    assert_alike(lambda api: api.Settings.from_env("SHALE_TEST_"))
    assert_alike(over_others)
    assert_alike(lambda api: api.Settings.load())
