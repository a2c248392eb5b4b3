"""HTTP messages of the proxy, and the outcome of requests."""

import asyncio

import pytest

from tests.soak.clients.http_requests import outcome_of, rows_of
from tests.soak.clients.resp_session import outcome_of as resp_outcome_of
from tests.soak.proxy.messages import Message, read_message


def read(data: bytes, *, has_body: bool = True) -> Message | None:
    async def scenario() -> Message | None:
        source = asyncio.StreamReader()
        source.feed_data(data)
        source.feed_eof()
        return await read_message(source, has_body=has_body)

    return asyncio.run(scenario())


def test_a_body_with_a_length_and_one_in_chunks() -> None:
    plain = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: x\r\n\r\nhello")
    chunked = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: x\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n")
    assert plain is not None
    assert chunked is not None
    assert plain.body == chunked.body == b"hello"
    assert plain.encoded() == chunked.encoded() == b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 5\r\n\r\nhello"


def test_the_answer_to_a_head_keeps_its_length() -> None:
    head = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", has_body=False)
    assert head is not None
    assert head.encoded(keeps_length=True) == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


def test_the_end_of_a_connection() -> None:
    assert read(b"") is None
    with pytest.raises(asyncio.IncompleteReadError):
        read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")


@pytest.mark.parametrize(
    ("status", "content", "outcome"),
    [
        (204, b"", "ok"),
        (201, b"", "ok"),
        (412, b"", "fail"),
        (429, b"", "fail"),
        (503, b'{"active": "http://w"}', "fail"),
        (503, b'{"detail": "the outcome is unknown"}', "unknown"),
        (421, b"", "unknown"),
        (500, b"", "unknown"),
    ],
)
def test_what_a_response_says_about_a_write(status: int, content: bytes, outcome: str) -> None:
    assert outcome_of(status, content) == outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("READONLY another writer took over", "fail"),
        ("TRYAGAIN this is a standby", "fail"),
        ("TRYAGAIN not durable after 10 s; the outcome of the last writes is unknown", "unknown"),
        ("ERR something else", "unknown"),
    ],
)
def test_what_an_error_of_the_redis_protocol_says(text: str, outcome: str) -> None:
    assert resp_outcome_of(text) == outcome


def test_a_scan_without_its_end_is_no_answer() -> None:
    import msgpack

    row, last = msgpack.packb([b"k", b"v", 1, 1, None]), msgpack.packb({"end": True, "rows": 1})
    assert rows_of(row + last) == {"k": b"v"}
    assert rows_of(row) is None
