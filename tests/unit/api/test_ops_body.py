"""The fast parser of bulk loads gives the same operations as the general one."""

from typing import Any

import msgpack
import pytest

from shale.api.ops_body import batch_from_body
from shale.errors import InvalidRequestError
from shale.service.http.problems import Problem


def decoded(ops: list[Any]) -> list[tuple[bytes, bytes]]:
    batch = batch_from_body(
        msgpack.unpackb(msgpack.packb({"ops": ops}), use_list=False), packed=True, max_key_bytes=5, max_rows=10
    )
    rows = batch.commit_rows(None)
    return list(zip(rows.keys, rows.values, strict=True))


@pytest.mark.parametrize("rest", [[], [["delete", b"z"]], [["put", b"z", b"", 5]]], ids=["plain", "delete", "lifetime"])
def test_of_several_puts_on_one_key_the_last_one_counts(rest: list[Any]) -> None:
    rows = decoded([["put", b"b", b"1"], ["put", b"a", b"2"], ["put", b"b", b"3"], *rest])
    assert rows[:2] == [(b"a", b"2"), (b"b", b"3")]


@pytest.mark.parametrize("rest", [[], [["delete", b"z"]]], ids=["plain", "delete"])
@pytest.mark.parametrize("key", [b"", b"abcdef"])
def test_a_key_that_cannot_be_is_refused(key: bytes, rest: list[Any]) -> None:
    """The message names the operation, also where all are added together."""
    with pytest.raises(InvalidRequestError, match=rf"^ops\[1\]: key of {len(key)} bytes"):
        decoded([["put", b"a", b"1"], ["put", key, b"2"], *rest])


@pytest.mark.parametrize("op", [["put", "text", b"1"], ["put", b"k", 7], ["put", b"k"], [b"put", b"k", b"1"], 5, "put"])
def test_an_operation_that_is_no_put_is_named(op: Any) -> None:
    with pytest.raises(Problem, match=r"ops\[1\]"):
        decoded([["put", b"a", b"1"], op])
