"""``--env-file`` and ``CLOUD_PROVIDER``, for commands and daemons."""

import os
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale_cli import __main__ as entry
from shale_cli.framework.environment import read_variables, store_of_provider


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the environment that a command changes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHALE_", "CLOUD_", "LOCAL_"))}
    monkeypatch.setattr(os, "environ", kept)


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record the daemons that were started, with their command lines."""
    started: list[tuple[str, list[str]]] = []

    def run_process(name: str, arguments: list[str]) -> None:
        started.append((name, arguments))
        raise SystemExit(0)

    monkeypatch.setattr(entry, "run_process", run_process)
    return started


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("# a comment\n\nA=1\nexport B = two words # and why\nC='x # y'\nD=\"a=b\"\nE=\n")
    assert read_variables(file) == {"A": "1", "B": "two words", "C": "x # y", "D": "a=b", "E": ""}
    file.write_text("A=1\nsecret\n")
    with pytest.raises(InvalidRequestError, match="line 2 is not NAME=value") as refusal:
        read_variables(file)
    assert "secret" not in str(refusal.value)
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_variables(tmp_path / "none")


@pytest.mark.parametrize(
    ("variables", "store"),
    [
        ({"CLOUD_PROVIDER": "local", "LOCAL_PATH": "/data/my dbs"}, "file:///data/my%20dbs"),
        ({"CLOUD_PROVIDER": "LOCAL", "LOCAL_PATH": "/data/"}, "file:///data"),
        ({"CLOUD_PROVIDER": "memory"}, "memory:///"),
        ({"CLOUD_PROVIDER": "aws", "AWS_BUCKET": "b"}, "s3://b"),
        ({"CLOUD_PROVIDER": "azure", "AZURE_CONTAINER_NAME": "c"}, "az://c"),
        ({"CLOUD_PROVIDER": "gcp", "GOOGLE_BUCKET_NAME": "g"}, "gs://g"),
    ],
)
def test_providers(variables: dict[str, str], store: str) -> None:
    assert store_of_provider(variables) == store


@pytest.mark.parametrize(
    "variables", [{"CLOUD_PROVIDER": "local"}, {"CLOUD_PROVIDER": "aws"}, {"CLOUD_PROVIDER": "nonsense"}]
)
def test_what_a_provider_lacks_is_told(variables: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="CLOUD_PROVIDER"):
        store_of_provider(variables)


def test_a_command_finds_its_database_like_slatedb_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "env").write_text(f"CLOUD_PROVIDER=local\nLOCAL_PATH={tmp_path}\n")
    assert entry.main(["-e", f"{tmp_path}/env", "--path", "db", "kv", "put", "a", "1"]) == 0
    assert (tmp_path / "db/manifest").is_dir()
    os.environ.pop("SHALE_STORE")
    os.environ["CLOUD_PROVIDER"] = "nonsense"
    assert entry.main(["kv", "get", "a", "-u", f"file://{tmp_path}/db"]) == 0, "what is said to us wins"
    capsys.readouterr()
    assert entry.main(["kv", "get", "a", "-p", "db"]) == 2
    assert "CLOUD_PROVIDER 'nonsense'" in capsys.readouterr().err
    assert entry.main(["-e", f"{tmp_path}/none", "kv", "get", "a"]) == 2


def test_short_options_after_the_noun_belong_to_it(tmp_path: Path, daemons: list[tuple[str, list[str]]]) -> None:
    (tmp_path / "env").write_text("SHALE_TEST_ENV_FILE=1\n")
    url = f"file://{tmp_path}/db"
    assert entry.main(["kv", "put", "a", "1", "-u", url]) == 0
    assert entry.main(["list-compactions", "-s", "1", "-e", "2", "-u", url]) == 3, "there are none, but -e is a number"
    assert entry.main(["kv", "get", "a", f"--env-file={tmp_path}/env", "-u", url]) == 0
    assert os.environ["SHALE_TEST_ENV_FILE"] == "1"


def test_daemons_take_global_options_and_slatedb_s_names(tmp_path: Path, daemons: list[tuple[str, list[str]]]) -> None:
    (tmp_path / "env").write_text("SHALE_TEST_ENV_FILE=1\n")
    for given in (
        ["-p", "writer", "-e", f"{tmp_path}/env", "run-compactor", "--no-embedded-worker"],
        ["writer", "--url", "memory:///db"],
        ["--env-file", f"{tmp_path}/env", "run-worker"],
        ["run-writer", "--set", "flush_interval=1s"],
    ):
        with pytest.raises(SystemExit):
            entry.main(given)
    assert daemons == [
        ("compactor", ["-p", "writer", "--no-embedded-worker"]),
        ("writer", ["--url", "memory:///db"]),
        ("worker", []),
        ("writer", ["--set", "flush_interval=1s"]),
    ]
    assert os.environ["SHALE_TEST_ENV_FILE"] == "1"
