"""``shale spark`` up to the start of Spark."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import anyio
import pytest

from shale.errors import DeadlineExceeded, InvalidRequestError
from shale.service.config.settings import load_settings
from shale_compactor.worker.settings import WorkerSettings
from shale_spark.cli import command
from shale_spark.cli.compact import worker_arguments
from shale_spark.cli.options import pairs, text_or_file
from shale_spark.demo.__main__ import main as demo
from shale_spark.prerequisites import require_extra
from tests.paths import REPOSITORY

WITHOUT_PYSPARK = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else find(name, package)
"""


def shale(*arguments: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    code = f"import sys\n{before}\nfrom shale_cli.__main__ import main\nsys.exit(main({list(arguments)!r}))"
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def test_help_needs_no_spark() -> None:
    told = shale("spark", "--help", before="sys.modules['pyspark'] = None")
    assert told.returncode == 0, told.stderr
    assert "check" in told.stdout
    assert len(told.stdout.splitlines()) <= 24


def test_without_the_extra_one_command_is_told() -> None:
    told = shale("spark", "check", "-u", "file:///nowhere/db", before=WITHOUT_PYSPARK)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "shale: pyspark: not installed; install with: pip install 'shale[spark]'\n"
    staying = shale("spark", "compact", "--work", "-u", "file:///nowhere/db", before=WITHOUT_PYSPARK)
    assert (staying.returncode, staying.stderr) == (told.returncode, told.stderr)


def test_mistakes_are_told_before_spark_starts() -> None:
    assert shale("spark", "check", "--conf", "spark.x", "-u", "file:///nowhere/db").returncode == 2
    assert "add --path" in shale("spark", "check", "--store", "file:///nowhere").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give exactly one of --full, --sources and --request"),
        (["--full", "--sources", "SR1"], "give exactly one of"),
        (["--work", "--full"], "--work submits nothing: leave out --full"),
        (["--work", "--destination", "0"], "--work submits nothing: leave out --destination"),
        (["--work", "--conf", "novalue"], "--conf novalue: write NAME=VALUE"),
    ],
)
def test_what_to_compact_is_clear_before_spark_starts(options: list[str], message: str) -> None:
    told = shale("spark", "compact", *options, "-u", "file:///nowhere/db")
    assert (told.returncode, told.stdout) == (2, "")
    assert message in told.stderr
    assert len(told.stderr.splitlines()) == 1, told.stderr


def test_packages_that_are_there_are_no_trouble() -> None:
    require_extra(("json", "anyio"))
    with pytest.raises(InvalidRequestError, match="no_such_a and no_such_b: not installed"):
        require_extra(("no_such_a", "json", "no_such_b"))


def test_properties_of_the_command_line() -> None:
    assert pairs(["spark.a=1", "spark.b=c=d", "spark.e="], "--conf") == {
        "spark.a": "1",
        "spark.b": "c=d",
        "spark.e": "",
    }
    with pytest.raises(InvalidRequestError, match=r"--conf spark\.a: write NAME=VALUE"):
        pairs(["spark.a"], "--conf")


def test_long_texts_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text('{"type": "record"}')
    assert text_or_file(f"@{tmp_path}/schema", "--avro-schema") == '{"type": "record"}'
    assert text_or_file("{}", "--avro-schema") == "{}"
    assert text_or_file(None, "--avro-schema") is None
    with pytest.raises(InvalidRequestError, match=r"--avro-schema: .*No such file"):
        text_or_file("@/nowhere", "--avro-schema")


def test_a_worker_that_stays_gets_what_the_command_line_says() -> None:
    conf = {"spark.executor.memory": "1g", "spark.driver.extraJavaOptions": '-Da="b c" -Dd=é\\'}
    arguments = worker_arguments("spark://host:7077", conf, 12)
    section = load_settings(WorkerSettings, ["--url=file:///data/orders", *arguments]).settings.spark
    assert section.master is not None
    master = section.master.get_secret_value()
    assert (section.executor, master, section.ranges) == ("spark", "spark://host:7077", 12)
    assert {name: value.get_secret_value() for name, value in section.conf.items()} == conf
    assert worker_arguments(None, {}, None) == ["--set=spark.executor=spark"]


def test_the_demo_wants_a_directory_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for place in (tmp_path / "full", tmp_path / "full" / "file"):
        assert demo([str(place)]) == 2
        assert capsys.readouterr().err == f"shale spark demo: {place} is not an empty directory\n"


@pytest.mark.timeout(15)
def test_the_timeout_does_not_wait_for_the_start_of_java() -> None:
    """No work has started that would have to be undone."""
    ended = Event()

    def starts_java() -> int:
        ended.wait(60.0)
        return 0

    try:
        with pytest.raises(DeadlineExceeded, match=r"not done after 0\.01 s"):
            anyio.run(command.run_with_timeout, starts_java, command.RunningSession(is_verbose=False), 0.01, None)
    finally:
        ended.set()
