"""Stream formats of scans: JSON lines, msgpack values, or Arrow.

A stream has rows and then an ending: ``{"end": true, "rows": n, "resume": token or null}``, or ``{"error": problem}``
after an error.  A stream without an ending was interrupted.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, ClassVar

import msgpack
import orjson

from shale.api.fields import to_base64
from shale.api.responses import to_msgpack
from shale.concurrency.loop_turns import LoopTurns
from shale.engine.scan.scan import Scan
from shale.service.http.documents import MSGPACK
from shale.types import Row

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
CHUNK_ROWS = 256
"""Of at most so many rows is a piece, because nothing else runs while it is encoded."""
VALUE_PIECE_BYTES = 3 << 18
"""A value above this size is sent in pieces of it, which base64 encodes without padding."""


class ScanFormat(ABC):
    """Encodes a scan into pieces; counts its rows and keeps the last key."""

    media_type: ClassVar[str]

    def __init__(self, piece_bytes: Callable[[], int], turns: LoopTurns) -> None:
        """Start a stream.

        Args:
            piece_bytes: keys and values of the next piece, unless a single row has more.
            turns: of all scans: to encode a piece blocks the event loop.
        """
        self.piece_bytes = piece_bytes
        self.turns = turns
        self.rows = 0
        self.last_key: bytes | None = None
        self.is_inside_value = False
        """Whether a part of a large value is not encoded yet, so that its memory is in use."""

    @abstractmethod
    def pieces(self, scan: Scan) -> AsyncIterator[bytes | memoryview]:
        """Yield the encoded rows.

        Raises:
            ShaleError: the scan fails.
        """

    @abstractmethod
    def ending(self, fields: Mapping[str, object]) -> bytes:
        """Encode the ending of the stream."""


class _Rows(ScanFormat):
    """A format that encodes row by row."""

    async def pieces(self, scan: Scan) -> AsyncIterator[bytes | memoryview]:
        """See ``ScanFormat``."""
        while rows := await scan.next_batch(CHUNK_ROWS, bytes_max=self.piece_bytes()):
            await self.turns.wait()
            self.rows += len(rows)
            self.last_key = rows[-1].key
            if len(rows[-1].value) <= VALUE_PIECE_BYTES:
                yield self._encoded(rows)
                continue
            # Only the last row of a batch can exceed the bytes of a piece.  It is in memory while the others are sent.
            self.is_inside_value = True
            row = rows.pop()
            if rows:
                yield self._encoded(rows)
            head, tail = self._around_value(row)
            yield head
            for piece in self._value_pieces(memoryview(row.value)):
                yield piece
                del piece
            del row, rows  # the value is not in memory while the scan waits for the next one
            self.is_inside_value = False
            yield tail

    def _value_pieces(self, value: memoryview) -> Iterator[bytes | memoryview]:
        """Yield a large value in pieces, so that it is not in memory a second time."""
        for start in range(0, len(value), VALUE_PIECE_BYTES):
            yield self._value_piece(value[start : start + VALUE_PIECE_BYTES])

    @abstractmethod
    def _encoded(self, rows: list[Row]) -> bytes: ...

    @abstractmethod
    def _around_value(self, row: Row) -> tuple[bytes, bytes]:
        """Return what precedes and follows the value of a row."""

    @abstractmethod
    def _value_piece(self, piece: memoryview) -> bytes | memoryview:
        """Encode a part of a value."""


class JsonLines(_Rows):
    """One JSON object per line: ``key``, ``value`` (base64), ``seq``, optionally ``create_ts`` and ``expire_ts``."""

    media_type = NDJSON

    def _encoded(self, rows: list[Row]) -> bytes:
        return b"".join(map(_line, rows))

    def _around_value(self, row: Row) -> tuple[bytes, bytes]:
        head, mark, tail = _line(row._replace(value=b"")).partition(b'"value":"')
        return head + mark, tail

    def _value_piece(self, piece: memoryview) -> bytes:
        return to_base64(piece)

    def ending(self, fields: Mapping[str, object]) -> bytes:
        """See ``ScanFormat``."""
        return orjson.dumps(fields) + b"\n"


class Msgpack(_Rows):
    """One list per row: key, value, seq, create_ts or nil, expire_ts or nil; the ending is a map."""

    media_type = MSGPACK

    def __init__(self, piece_bytes: Callable[[], int], turns: LoopTurns) -> None:
        super().__init__(piece_bytes, turns)
        self._packer = msgpack.Packer(autoreset=False)

    def _encoded(self, rows: list[Row]) -> bytes:
        packer = self._packer
        for row in rows:
            packer.pack(row)
        return self._packed()

    def _around_value(self, row: Row) -> tuple[bytes, bytes]:
        packer = self._packer
        packer.pack_array_header(len(row))
        packer.pack(row.key)
        head = self._packed() + b"\xc6" + len(row.value).to_bytes(4, "big")  # bin 32: large values only
        for field in row[2:]:
            packer.pack(field)
        return head, self._packed()

    def _value_piece(self, piece: memoryview) -> memoryview:
        return piece

    def _packed(self) -> bytes:
        data: bytes = self._packer.bytes()
        self._packer.reset()
        return data

    def ending(self, fields: Mapping[str, object]) -> bytes:
        """See ``ScanFormat``."""
        return to_msgpack(fields)


class ArrowStream(ScanFormat):
    """Arrow's stream format; the ending is JSON in the metadata ``shale`` of an empty last batch."""

    media_type = ARROW

    def __init__(self, piece_bytes: Callable[[], int], turns: LoopTurns) -> None:
        from shale.engine.arrow.stream import ArrowWriter

        super().__init__(piece_bytes, turns)
        self._writer: Any = ArrowWriter()

    async def pieces(self, scan: Scan) -> AsyncIterator[bytes | memoryview]:
        """See ``ScanFormat``."""
        while (rows := await scan.columns()) is not None:
            await self.turns.wait()
            self.rows += len(rows)
            self.last_key = rows.key(len(rows) - 1)
            for piece in self._writer.pieces(rows):
                self.is_inside_value = len(piece) > VALUE_PIECE_BYTES
                for start in range(0, len(piece), VALUE_PIECE_BYTES):
                    yield piece[start : start + VALUE_PIECE_BYTES]
                del piece
            del rows  # no value is in memory while the scan waits for the next one
            self.is_inside_value = False

    def ending(self, fields: Mapping[str, object]) -> bytes:
        """See ``ScanFormat``."""
        data: bytes = self._writer.ending({"shale": orjson.dumps(fields)})
        return data


FORMATS: dict[str, type[ScanFormat]] = {each.media_type: each for each in (JsonLines, Msgpack, ArrowStream)}
"""Formats by media type; the first one is the default."""


def _line(row: Row) -> bytes:
    key, value, seq, create_ts, expire_ts = row
    if expire_ts is None and create_ts is not None:
        return b'{"key":"%b","value":"%b","seq":%d,"create_ts":%d}\n' % (
            to_base64(key),
            to_base64(value),
            seq,
            create_ts,
        )
    fields: dict[str, object] = {"key": to_base64(key).decode(), "value": to_base64(value).decode(), "seq": seq}
    if create_ts is not None:
        fields["create_ts"] = create_ts
    if expire_ts is not None:
        fields["expire_ts"] = expire_ts
    return orjson.dumps(fields) + b"\n"
