"""Large values in the stream of a scan: pieces that together are what one piece would be."""

import asyncio
import base64
import random

import msgpack
import orjson
import pytest

import shale
from shale.api.scan.formats import FORMATS, VALUE_PIECE_BYTES, ArrowStream, JsonLines, Msgpack, ScanFormat
from shale.concurrency.loop_turns import LoopTurns
from shale.store.memory import MemoryStore
from shale.types import Row

PIECE_BYTES = 1 << 20
LARGE = random.Random(1).randbytes(5 * VALUE_PIECE_BYTES + 1000)
VALUES = {b"a": b"small", b"b": LARGE, b"c": LARGE[: VALUE_PIECE_BYTES + 1], b"d": b"", b"e": LARGE[:VALUE_PIECE_BYTES]}


def encoded(encoder: ScanFormat, *, ttl: int | None = None) -> tuple[list[bytes], list[bool]]:
    """Return the pieces of a scan over all rows, and whether each was inside a large value."""

    async def main() -> tuple[list[bytes], list[bool]]:
        pieces, inside = [], []
        async with shale.Db.open("large", store=MemoryStore()) as db:
            for key, value in VALUES.items():
                await db.put(key, value, ttl=ttl)
            async for piece in encoder.pieces(db.scan()):
                pieces.append(bytes(piece))
                inside.append(encoder.is_inside_value)
        return pieces, inside

    return asyncio.run(main())


@pytest.mark.parametrize("media_type", FORMATS)
def test_no_piece_is_much_larger_than_a_part_of_a_value(media_type: str) -> None:
    encoder = FORMATS[media_type](lambda: PIECE_BYTES, LoopTurns())
    pieces, inside = encoded(encoder)
    assert max(map(len, pieces)) < 1.4 * (PIECE_BYTES + VALUE_PIECE_BYTES)
    assert any(inside)
    assert not encoder.is_inside_value
    assert encoder.rows == len(VALUES)


@pytest.mark.parametrize("ttl", [None, 10**9])
def test_lines_of_json_are_whole(ttl: int | None) -> None:
    lines = b"".join(encoded(JsonLines(lambda: PIECE_BYTES, LoopTurns()), ttl=ttl)[0]).splitlines()
    rows = [orjson.loads(line) for line in lines]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    assert {base64.b64decode(row["key"]): base64.b64decode(row["value"]) for row in rows} == VALUES
    assert all(("expire_ts" in row) == (ttl is not None) for row in rows)


def test_rows_of_msgpack_are_whole() -> None:
    unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)
    unpacker.feed(b"".join(encoded(Msgpack(lambda: PIECE_BYTES, LoopTurns()))[0]))
    rows = [Row(*row) for row in unpacker]
    assert {row.key: row.value for row in rows} == VALUES
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5]


def test_batches_of_arrow_are_whole() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    encoder = ArrowStream(lambda: PIECE_BYTES, LoopTurns())
    data = b"".join(encoded(encoder)[0]) + encoder.ending({"end": True})
    table = pyarrow.ipc.open_stream(data).read_all()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == VALUES


def test_rows_before_a_large_value_are_sent_while_it_is_in_memory() -> None:
    """A scan that waits there must keep its share of memory."""
    pieces, inside = encoded(JsonLines(lambda: PIECE_BYTES, LoopTurns()))
    before = next(place for place, piece in enumerate(pieces) if b'"seq":1' in piece)
    assert inside[before]
    assert not inside[-1]
