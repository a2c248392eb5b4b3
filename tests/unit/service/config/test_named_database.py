"""The database of a command without other settings, which is found without pydantic."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from shale.errors import ShaleError
from shale.service.config import named_database as subject
from shale.service.config.named_database import NamedDatabase, named_database
from shale.service.config.settings import load_settings
from shale.store.location import Location
from shale_cli.framework.settings import CommandSettings


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("SHALE_", "SLATEDB_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(subject, "DEFAULT_FILE", tmp_path / "absent.toml")
    monkeypatch.setattr(subject, "SECRETS_DIR", tmp_path / "secrets")


def settings_database(given: Mapping[str, str]) -> NamedDatabase | None:
    """Return what the classes of the settings read; ``None`` if they refuse it."""
    line = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    try:
        found = load_settings(CommandSettings, line).settings.database
    except ShaleError:
        return None
    return NamedDatabase(found.location(), found.wal_store_url())


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({"url": "file:///data/orders"}, {}),
        ({"url": "s3://bucket/a/b", "wal_store": "s3://logs"}, {}),
        ({"store": "s3://bucket", "path": "a/b"}, {}),
        ({"store": "s3://bucket"}, {}),
        ({}, {"SHALE_URL": "gs://bucket/db"}),
        ({"url": "file:///data/a"}, {"SHALE_URL": "file:///data/b", "SHALE_WAL_STORE": "s3://logs"}),
        ({"path": "a"}, {"SHALE_STORE": "s3://bucket", "SHALE_PATH": "b"}),
        ({"url": "file:///data/a"}, {"SHALE_STORE": "s3://bucket"}),
        ({"url": "http://bucket/a"}, {}),
        ({"url": ""}, {}),
        ({"url": "file:///data/a", "wal_store": "s3://bucket/path"}, {}),
        ({}, {}),
    ],
)
def test_it_is_the_one_that_the_settings_have(
    given: dict[str, str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert named_database(given, os.environ) == settings_database(given)


def test_its_label_is_that_of_the_settings() -> None:
    for given in ({"url": "s3://bucket/a/b"}, {"store": "s3://bucket"}):
        found = named_database(given, {})
        line = [f"--{name}={value}" for name, value in given.items()]
        assert found is not None
        assert found.label == load_settings(CommandSettings, line).settings.database.label()


@pytest.mark.parametrize("name", ["SHALE_LOG__LEVEL", "SHALE_CONFIG", "SLATEDB_FLUSH_INTERVAL", "SHALE_url"])
def test_other_variables_are_left_to_the_settings(name: str) -> None:
    assert named_database({"url": "file:///data/a"}, {name: "x"}) is None


def test_files_are_left_to_the_settings(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    (secrets / "kubernetes.io").mkdir(parents=True)
    assert named_database({"url": "file:///data/a"}, {}) == NamedDatabase(Location("file:///data", "a"), None)
    (secrets / "store__region").write_text("x")
    assert named_database({"url": "file:///data/a"}, {}) is None
    (secrets / "store__region").unlink()
    (tmp_path / "absent.toml").write_text("")
    assert named_database({"url": "file:///data/a"}, {}) is None
