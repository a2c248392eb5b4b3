"""Exit codes are a public interface: this table fixes them (docs/reference/exit-codes.md)."""

import pytest

from shale import errors
from shale.service.exit_codes import ExitCode, command_exit_code, daemon_exit_code


def test_the_numbers() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0, "ERROR": 1, "USAGE": 2, "NOT_FOUND": 3, "NEGATIVE": 4, "DATA": 65, "UNAVAILABLE": 69, "PANIC": 70,
        "TEMPFAIL": 75, "NOPERM": 77, "CONFIG": 78, "FENCED": 80, "STORE_UNSAFE": 81, "INTERRUPTED": 130,
        "TERMINATED": 143,
    }  # fmt: skip


TABLE = [
    # error, daemon at start, daemon later, command
    (errors.FencedError("x"), 80, 80, 80),
    (errors.CorruptionError("x"), 65, 65, 65),
    (errors.InvalidVersion("x"), 65, 65, 65),
    (errors.ManifestMissing(3), 65, 65, 65),
    (errors.ProtocolPanic("x"), 70, 70, 70),
    (errors.UnavailableError("x"), 69, 75, 69),
    (errors.ObjectUpdateTimeout("x"), 69, 75, 69),
    (errors.ConflictError("x"), 75, 75, 75),
    (errors.NotFoundError("x"), 69, 69, 3),
    (errors.LatestRecordMissing("x"), 69, 69, 3),
    (errors.InvalidRequestError("x"), 78, 78, 2),
    (errors.InvalidDbState("x"), 78, 78, 2),
    (errors.AccessDenied("x"), 77, 77, 77),
    (errors.StoreUnsafe("x"), 81, 81, 81),
    (errors.ClosedError("x"), 1, 1, 1),
    (ValueError("x"), 1, 1, 1),
]


@pytest.mark.parametrize(("error", "at_start", "later", "command"), TABLE, ids=lambda value: type(value).__name__)
def test_every_error_has_its_code(error: Exception, at_start: int, later: int, command: int) -> None:
    assert daemon_exit_code(error, started=False) == at_start
    assert daemon_exit_code(error, started=True) == later
    assert command_exit_code(error) == command


def test_a_group_counts_as_its_worst_member() -> None:
    inner = ExceptionGroup("inner", [errors.ProtocolPanic("x"), ValueError("x")])
    group = ExceptionGroup("outer", [errors.UnavailableError("x"), inner, errors.FencedError("x")])
    assert daemon_exit_code(group, started=True) == ExitCode.PANIC
