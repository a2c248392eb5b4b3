"""Errors keep class, message and attributes between a task and the driver."""

from uuid import UUID

import msgpack
import pytest

from shale import errors
from shale.errors import CheckpointMissing, CorruptionError, InvalidCompaction, ObjectVersionBehindBoundary, ShaleError
from shale_spark.errors import decode_error, encode_error


@pytest.mark.parametrize(
    "error",
    [
        CorruptionError("checksum mismatch", path="db/compacted/x.sst", offset=4096),
        InvalidCompaction("V4", "the tree does not have the sources"),
        ObjectVersionBehindBoundary(3, 5, "manifest"),
        CheckpointMissing(UUID(int=7)),
        errors.UnavailableError("the store gave up"),
    ],
)
def test_an_error_comes_back_as_itself(error: ShaleError) -> None:
    """Its attributes are the same on the other side."""
    back = decode_error(encode_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert (back.kind, back.retryable) == (error.kind, error.retryable)
    assert {name: str(value) for name, value in vars(back).items()} == {
        name: str(value) for name, value in vars(error).items()
    }


def test_an_unknown_class_becomes_its_nearest_ancestor() -> None:
    """A class that only the executors can import is still an error of its branch."""

    class Local(CorruptionError):
        """A class that cannot be imported."""

    back = decode_error(encode_error(Local("damaged", path="x")))
    assert type(back) is CorruptionError
    assert str(back) == "x: damaged"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb([]),
        msgpack.packb({"classes": [], "message": "", "state": {}}),
        msgpack.packb({"classes": [["shale.errors", "Row"]], "message": "", "state": {}}),
        msgpack.packb({"classes": [["shale.errors", "CorruptionError"]], "message": "", "state": 1}),
        msgpack.packb({"classes": [["shale.errors", "CorruptionError"]], "message": "", "state": {"args": 1}}),
        msgpack.packb({"classes": [["shale.errors", "CorruptionError"]], "message": b"text", "state": {}}),
        msgpack.packb({"classes": [[1, 2]], "message": "", "state": {}}),
        msgpack.packb({"classes": [["shale.errors", "CorruptionError"]], "state": {}}),
    ],
)
def test_what_is_no_error_is_refused(body: bytes) -> None:
    """An executor of another release may send it; the driver says so and does not end with a KeyError."""
    with pytest.raises(CorruptionError, match="the error of a task is malformed"):
        decode_error(body)
