"""The keys that the arguments of ``scan`` mean."""

from shale.engine.batch import BytesLike
from shale.errors import InvalidRequestError
from shale.types import KeyRange


def scan_range(
    *, prefix: BytesLike | None = None, start: BytesLike | None = None, stop: BytesLike | None = None
) -> KeyRange:
    """All keys that begin with ``prefix`` and lie in ``[start, stop)``; what is ``None`` does not limit.

    Raises:
        InvalidRequestError: not bytes.
    """
    wanted = KeyRange.half_open(_bound(start, "start"), _bound(stop, "stop"))
    begin = _bound(prefix, "prefix")
    return wanted if begin is None else wanted.intersect(KeyRange.with_prefix(begin))


def _bound(key: object, name: str) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes | bytearray | memoryview):
        raise InvalidRequestError(f"{name} must be bytes-like, not {type(key).__name__}")
    return bytes(key)
