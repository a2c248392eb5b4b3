"""Messages between tasks and the driver while a compaction runs, and their framing.

::

    length of the body u32 big-endian | body: msgpack

A task asks and the driver answers, one at a time::

    TaskHello     → RangeStart (go on after this SST) | AttemptRefused (a newer attempt owns the range) | RangeDone
    TaskReport    → ReportAccepted | AttemptRefused
    RangeFinished → ReportAccepted | AttemptRefused
    TaskFailed    → nothing: the job is over
"""

from struct import Struct
from typing import Any, TypeAlias

import msgpack
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.sst.info import decode_sst_info, encode_sst_info
from shale.types import Sst, Ulid

FRAME_BYTES_MAX = 16 << 20
"""A frame holds a few SSTs with two keys each."""
HELLO_BYTES_MAX = 4096
"""The first frame of a connection, whose sender is not known yet."""
_LENGTH = Struct(">I")


@dataclass(frozen=True, slots=True)
class TaskHello:
    """Begins an attempt at a range.  A later attempt has a larger ``attempt``."""

    token: str
    range: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Progress since the last report; also a sign of life.

    Args:
        position: SSTs of the range before ``ssts``.
        ssts: finished since.
        read_bytes: stored bytes of inputs that arrived since.
        merged_bytes: keys and values that left the merge since.
        expired: values and operands that expired since.
        folded: operands that were folded since.
        refused: operands that were kept since, because the merge operator failed on them.
        why_refused: the first failure of the range; empty as long as there is none.
    """

    position: int
    ssts: tuple[Sst, ...]
    read_bytes: int = 0
    merged_bytes: int = 0
    expired: tuple[int, int] = (0, 0)
    folded: int = 0
    refused: int = 0
    why_refused: str = ""


@dataclass(frozen=True, slots=True)
class RangeFinished:
    """The range has all its SSTs: their number and the last one."""

    count: int
    last: Ulid | None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The job cannot succeed; ``error`` is an encoded ``ShaleError``."""

    error: bytes


@dataclass(frozen=True, slots=True)
class RangeStart:
    """The attempt owns the range: go on after ``last``, the SST number ``count``."""

    count: int
    last: Sst | None


@dataclass(frozen=True, slots=True)
class ReportAccepted:
    """Go on."""


@dataclass(frozen=True, slots=True)
class AttemptRefused:
    """Another attempt owns the range; wait until this connection ends, then fail."""


@dataclass(frozen=True, slots=True)
class RangeDone:
    """The range is already complete."""


Message: TypeAlias = (
    TaskHello | TaskReport | RangeFinished | TaskFailed | RangeStart | ReportAccepted | AttemptRefused | RangeDone
)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        TaskHello,
        TaskReport,
        RangeFinished,
        TaskFailed,
        RangeStart,
        ReportAccepted,
        AttemptRefused,
        RangeDone,
    )
}
_SST = 1
_ULID = 2
_ULID_BYTES = 16


def encode(message: Message) -> bytes:
    """Encode a message as a frame.

    Raises:
        CorruptionError: it is larger than any frame.
    """
    fields = [getattr(message, name) for name in message.__slots__]
    body = bytes(msgpack.packb([type(message).__name__, *fields], default=_pack_value, strict_types=True) or b"")
    if len(body) > FRAME_BYTES_MAX:
        raise CorruptionError(f"a report of {len(body)} bytes exceeds {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Decode the message of a frame.

    Raises:
        CorruptionError: it is none.
    """
    try:
        name, *fields = msgpack.unpackb(body, ext_hook=_unpack_value, use_list=False)
        message: Message = _KINDS[name](*fields)
        _require_types(message)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise CorruptionError(f"a message between driver and task is malformed: {error}") from error
    return message


def _require_types(message: Message) -> None:
    match message:
        case (
            TaskHello(str(), int(), int())
            | RangeFinished(int(), Ulid() | None)
            | TaskFailed(bytes())
            | RangeStart(int(), Sst() | None)
            | ReportAccepted()
            | AttemptRefused()
            | RangeDone()
        ):
            return
        case TaskReport(int(), tuple() as ssts, int(), int(), (int(), int()), int(), int(), str()):
            if all(isinstance(each, Sst) for each in ssts):
                return
    raise TypeError(f"a field of {type(message).__name__} has another type")


class MessageStream:
    """Messages over a connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._receive = BufferedByteReceiveStream(stream)

    async def send(self, message: Message) -> None:
        """Send one message."""
        await self._stream.send(encode(message))

    async def receive(self, bytes_max: int = FRAME_BYTES_MAX) -> Message:
        """Receive the next message, of at most so many bytes.

        Raises:
            EndOfStream, IncompleteRead, BrokenResourceError: the other side is gone.
            CorruptionError: the frame holds no message.
        """
        (length,) = _LENGTH.unpack(await self._receive.receive_exactly(_LENGTH.size))
        if length > bytes_max:
            raise CorruptionError(f"a frame of {length} bytes exceeds {bytes_max}")
        return decode(await self._receive.receive_exactly(length))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def _pack_value(value: object) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Sst):
        fields = [value.id.to_bytes(16), value.format_version, encode_sst_info(value.info)]
        return msgpack.ExtType(_SST, msgpack.packb(fields))
    if isinstance(value, Ulid):
        return msgpack.ExtType(_ULID, value.to_bytes(16))
    raise TypeError(f"{type(value).__name__} is part of no message")


def _unpack_value(code: int, data: bytes) -> object:
    if code == _ULID:
        return _ulid(data)
    if code != _SST:
        raise ValueError(f"unknown kind of value {code}")
    id_, version, info = msgpack.unpackb(data)
    if not isinstance(version, int) or not isinstance(info, bytes):
        raise TypeError("the version or the info of an SST has another type")
    return Sst(
        id=_ulid(id_),
        info=decode_sst_info(info),
        format_version=version,
    )


def _ulid(data: object) -> Ulid:
    if not isinstance(data, bytes) or len(data) != _ULID_BYTES:
        raise ValueError(f"an id is no {_ULID_BYTES} bytes")
    return Ulid(int.from_bytes(data))
