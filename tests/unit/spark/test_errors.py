"""Spark's errors of other processes in one line."""

import pytest
from py4j.protocol import Py4JNetworkError

from shale.errors import CorruptionError, NotFoundError, ShaleError, UnavailableError
from shale.service.exit_codes import ExitCode, command_exit_code
from shale_spark.errors import SparkError, shale_error_of

OF_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 1, in main
    process()
  File "/x/metered.py", line 67, in __init__
    api: _Family(
         ^^^^^^^^
{raised}

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure: something
"""


def test_an_error_of_ours_comes_back_as_itself() -> None:
    text = OF_A_WORKER.format(raised="shale.errors.NotFoundError: file:///x: there is no checkpoint 7")
    error = shale_error_of(Exception(text))
    assert type(error) is NotFoundError
    assert str(error) == "file:///x: there is no checkpoint 7"
    assert command_exit_code(error) == ExitCode.NOT_FOUND


def test_an_error_in_the_driver_has_no_traceback() -> None:
    text = "[PYTHON_DATA_SOURCE_ERROR] Failed to begin: shale.errors.NotFoundError: file:///x: no\n\nJVM stacktrace:\n"
    error = shale_error_of(Exception(text))
    assert type(error) is NotFoundError
    assert str(error) == "file:///x: no"


def test_classes_that_want_to_know_more_come_back_too() -> None:
    text = OF_A_WORKER.format(raised="shale.errors.CorruptionError: db/compacted/1.sst at byte 7: checksum")
    error = shale_error_of(Exception(text))
    assert isinstance(error, CorruptionError)
    assert str(error) == "db/compacted/1.sst at byte 7: checksum"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OF_A_WORKER.format(raised="ModuleNotFoundError: No module named 'shale'"), "No module named 'shale'"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03;\n'Plan", "Path does not exist: file:/x"),
        ("An error occurred while calling o1.load.\n: java.io.IOException: no disk\n\tat x", "IOException: no disk"),
        ("", "ValueError"),
    ],
)
def test_else_what_was_said_first(text: str, line: str) -> None:
    error = shale_error_of(ValueError(text))
    assert type(error) is SparkError
    assert line in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "gone", [ConnectionRefusedError("refused"), Py4JNetworkError("Answer from Java side is empty")]
)
def test_a_driver_that_died_is_not_there(gone: Exception) -> None:
    assert isinstance(shale_error_of(gone), UnavailableError)


def test_names_that_are_no_classes_of_ours_are_not_imported() -> None:
    assert type(shale_error_of(Exception("os.system: x\nshale.errors.Path: y\nshale.nowhere.Error: z"))) is SparkError


def test_what_is_ours_stays() -> None:
    ours = ShaleError("as it is")
    assert shale_error_of(ours) is ours
