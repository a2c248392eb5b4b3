"""What a server, or whatever is between it and a client, answers to each call of ``shale.client``."""

import random
import zlib
from collections.abc import AsyncIterator

import httpx
import msgpack
import orjson

from shale.client.client import Client
from shale.client.ops import Compare, Ops
from shale.engine.arrow.stream import ArrowWriter
from shale.errors import ShaleError
from shale.kernels.rows import rows_from_entries
from shale.types import Entry
from tests.fuzz import loop
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets.http import mutate_msgpack
from tests.fuzz.targets.metadata import JSON_MUTATION, JSON_WORDS

_KEYS = [b"k", b"l"]
_STATUSES = (200, 200, 200, 204, 201, 302, 400, 401, 404, 409, 410, 412, 429, 500, 503)
_HEADERS: tuple[tuple[str, str], ...] = (
    *(("x-shale-seq", "7"), ("x-shale-create-ts", "5"), ("x-shale-expire-ts", "9"), ("x-shale-resume", "abc")),
    *(("x-shale-seq", "x"), ("x-shale-seq", "9" * 5000), ("x-shale-create-ts", ""), ("x-shale-resume", "\xff")),
    *(("content-encoding", "gzip"), ("content-encoding", "deflate"), ("retry-after", "1e9"), ("location", "http://[")),
)
_GOOD = 0b1111


class _Body(httpx.AsyncByteStream):
    def __init__(self, data: bytes, *, breaks: bool) -> None:
        self._data = data
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        step = max(1, len(self._data) // 2)
        for start in range(0, len(self._data), step):
            yield self._data[start : start + step]
        if self._breaks:
            raise httpx.ReadError("the connection broke")


def _answer(data: bytes) -> None:
    """The input: the call, the status, two bytes of bits that choose headers, whether it breaks, and the body."""
    call, status, first, second, breaks = data[:5].ljust(5, b"\0")
    bits = first | second << 8
    headers = [header for number, header in enumerate(_HEADERS) if bits >> number & 1]
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]

    def respond(_: httpx.Request) -> httpx.Response:
        body = _Body(data[5:], breaks=breaks == 1)
        return httpx.Response(_STATUSES[status % len(_STATUSES)], headers=encoded, stream=body)

    loop.run(_called(call % 8, httpx.MockTransport(respond)))


async def _called(call: int, transport: httpx.MockTransport) -> None:
    async with Client("http://server", attempts=1, transport=transport) as client:
        match call:
            case 0:
                row = await client.get_row(b"k")
                _check("a row", row is None or (type(row.value) is bytes and type(row.seq) is int))
            case 1:
                values = await client.get_many(_KEYS)
                _check(
                    "values", len(values) == len(_KEYS) and all(type(each) in (bytes, type(None)) for each in values)
                )
            case 2:
                _check("a write", type((await client.put(b"k", b"v")).seq) is int)
            case 3:
                _check("a batch", type((await client.batch(Ops().put(b"k", b"v"))).rows) is int)
            case 4:
                _check("a transaction", type((await client.txn([Compare.absent(b"k")])).seq) is int)
            case 5:
                async for row in client.scan(limit=100):
                    _check("a scanned row", type(row.key) is bytes and type(row.value) is bytes)
            case 6:
                for fields in (await client.scan_arrow(limit=100)).to_pylist():
                    _check("a row of a table", type(fields["key"]) is bytes and type(fields["value"]) is bytes)
            case _:
                async with client.snapshot() as snapshot:
                    _check("a snapshot", type(snapshot.id) is str and type(snapshot.expires_ms) is int)
                    await snapshot.renew()


def _check(what: str, is_right: bool) -> None:
    if not is_right:
        raise Difference(f"{what} has other types than the client promises")


def _seeds() -> list[bytes]:
    def pack(value: object) -> bytes:
        return bytes(msgpack.packb(value) or b"")

    rows = b"".join(pack([b"k%d" % number, b"v", number, 5, None]) for number in range(3))
    problem = {"status": 409, "detail": "no", "kind": "transaction", "failed": [0]}
    bodies = [
        b"value",
        pack({"values": [b"v", None]}),
        b"",
        pack({"seq": 1, "create_ts": 2, "rows": 1}),
        pack({"seq": 1, "rows": 0}),
        rows + pack({"end": True}),
        _arrow_rows(),
        pack({"id": "s", "seq": 4, "expires_ms": 5}),
    ]
    found = [bytes([call, 0, _GOOD, 0, 0]) + body for call, body in enumerate(bodies)]
    found.append(bytes([5, 0, _GOOD, 0, 0]) + rows + pack({"error": problem}))
    found.append(bytes([5, 0, _GOOD, 0, 1]) + rows)
    found += [bytes([call, status, 0, 0, 0]) + orjson.dumps(problem) for call in (0, 5) for status in (8, 9, 11, 14)]
    found.append(bytes([5, 14, 0, 0, 1]) + b"oops")
    found.append(bytes([1, 0, 0, 2, 0]) + zlib.compress(bodies[1]))
    return found


def _arrow_rows() -> bytes:
    rows = rows_from_entries([Entry(b"k%d" % number, b"v" * number, number, 0) for number in range(3)])
    writer = ArrowWriter()
    return b"".join(writer.pieces(rows)) + writer.ending({"shale": b'{"end":true}'})


def _mutate(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        at = rng.randrange(5)
        return data[:at] + bytes([rng.choice((0, 1, 2, 4, 8, rng.randrange(256)))]) + data[at + 1 :]
    change = any_of(mutate_msgpack, JSON_MUTATION, words_mutation(JSON_WORDS), mutate_bytes)
    return data[:5] + change(rng, data[5:])


def targets() -> list[Target]:
    modules = tuple(f"shale.client.{name}" for name in ("answers", "client", "errors", "retry", "scans"))
    modules = (*modules, "shale.engine.arrow.stream")
    return [Target("client answer", _answer, _seeds, (ShaleError,), modules, _mutate, weight=2)]
