"""The chart's values, their schema and their documentation agree, and with the settings of the daemons."""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import yaml

from shale.service.config.config_sources import ROLES
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale_cli.framework.daemons import settings_class
from tests.json_schemas import jsonschema
from tests.paths import REPOSITORY

from .chart import CHART, MINIMAL, MIXIN, VALUES, helm, refusal

SCRIPTS = REPOSITORY / "deploy" / "chart"
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def complaints(values: dict[str, Any]) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(values)]


def test_generated_files_are_current() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        made = run_path(str(SCRIPTS / "generate.py"))["files"]()
    stale = [str(file.relative_to(REPOSITORY)) for file, text in made.items() if file.read_text() != text]
    assert stale == [], "run make gen"


@pytest.mark.parametrize("name", VALUES)
def test_values_fit_their_schema(name: str) -> None:
    VALIDATOR.validate(yaml.safe_load(VALUES[name].read_text()))


def test_the_schema_knows_every_default_and_nothing_else() -> None:
    VALIDATOR.validate(DEFAULTS)
    assert set(DEFAULTS) == set(SCHEMA["properties"]) - {"global"}
    assert complaints({"writer": {"replicas": 2}}) != []
    jsonschema.Draft7Validator(json.loads((MIXIN / "values.schema.json").read_text())).validate(
        yaml.safe_load((MIXIN / "values.yaml").read_text())
    )


@pytest.mark.parametrize("name", VALUES)
def test_lint(name: str) -> None:
    ended = helm("lint", "--strict", ".", "-f", str(VALUES[name]))
    assert ended.returncode == 0, ended.stdout


def test_lint_of_the_mixin() -> None:
    ended = helm("lint", "--strict", str(MIXIN))
    assert ended.returncode == 0, ended.stdout


def refusing(settings: dict[str, Any], folder: Path) -> list[str]:
    """Return the daemons that refuse a settings file."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"database": {"url": "s3://bucket/orders"}, **settings}))
    found = []
    for role in ROLES:
        try:
            load_settings(settings_class(role), ["--config", str(file)])
        except SettingsError:
            found.append(role)
    return found


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ({"databases": ["a"]}, ["writer", "compactor", "reader"]),
        ({"gc": {"databses_below": "a"}}, ["gc"]),
        ({"writer": {"flush_interval": ["1s"]}}, ["writer"]),
        ({"http": {"max_idempotency_keys": 1}}, ["reader"]),
        ({"segment_extractor": {"prefix_bytes": 3}}, ["writer", "reader"]),
    ],
)
def test_settings_that_a_daemon_refuses_are_refused_by_the_schema(
    settings: dict[str, Any], roles: list[str], tmp_path: Path
) -> None:
    assert refusing(settings, tmp_path) == roles
    assert complaints({"settings": settings}) != []


@pytest.mark.parametrize(
    "settings", [{"database": {"url": "s3://b/a"}}, {"admin": {"port": 1}}, {"store": {"secret_access_key": "x"}}]
)
def test_what_other_values_make_and_secrets_are_no_settings_of_the_chart(settings: dict[str, Any]) -> None:
    assert complaints({"settings": settings}) != []


@pytest.mark.parametrize(
    "settings",
    [
        {"gc": {"databases_below": "teams", "databases": ["a"]}},
        {"flush_interval": "100ms", "l0_max_ssts": 8, "metric_level": "info"},
        {"compactor_options": {"worker": {"max_sst_size": "64MiB"}}},
        {"writer": {"http": {"max_batch_rows": 1}}, "http": {"max_body_bytes": 1024}},
        {"filters": [{"bits_per_key": 12}], "disk_cache": {"directory": "/var/cache/shale"}},
        {"store": {"max_retries": None, "request_timeout": 5}},
        {"garbage_collector_options": {"wal_options": None}},
    ],
)
def test_settings_that_daemons_take_fit_the_schema(settings: dict[str, Any], tmp_path: Path) -> None:
    assert complaints({"settings": settings}) == []
    assert refusing(settings, tmp_path) == []


def test_a_database_of_several_has_no_section_of_the_gc() -> None:
    """One gc serves several databases."""
    database = {"name": "a", "url": "s3://b/a"}
    assert complaints({"databases": [{**database, "settings": {"writer": {"l0_max_ssts": 4}}}]}) == []
    assert complaints({"databases": [{**database, "settings": {"gc": {"delete_concurrency": 4}}}]}) != []


def test_helm_reads_the_schema_as_this_test_does() -> None:
    assert "databases is not allowed" in refusal(*MINIMAL, "--set", "settings.databases={a}")


def test_the_readme_describes_every_value() -> None:
    text = (CHART / "README.md").read_text()

    def names(tree: dict[str, Any], above: str) -> list[str]:
        return [f"{above}{name}" for name in tree]

    for name, value in DEFAULTS.items():
        wanted = names(value, f"{name}.") if isinstance(value, dict) and value else [name]
        missing = [each for each in wanted if f"`{each}" not in text]
        assert missing == [] or f"- `{name}` (" in text, missing
    assert max(len(line) for line in text.splitlines()) <= 100
