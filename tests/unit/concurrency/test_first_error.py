"""The error that caused a group: the first one that reflects no other."""

import anyio
import pytest

from shale.concurrency.first_error import first_error

FIRST, SECOND, BROKEN = ValueError("first"), KeyError("second"), anyio.BrokenResourceError()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (FIRST, FIRST),
        (BROKEN, BROKEN),
        (ExceptionGroup("", [FIRST, SECOND]), FIRST),
        (ExceptionGroup("", [ExceptionGroup("", [SECOND]), FIRST]), SECOND),
        (ExceptionGroup("", [ExceptionGroup("", [BROKEN]), FIRST]), FIRST),
        (ExceptionGroup("", [BROKEN]), BROKEN),
    ],
)
def test_the_first_cause_is_found(error: Exception, cause: Exception) -> None:
    assert first_error(error) is cause
