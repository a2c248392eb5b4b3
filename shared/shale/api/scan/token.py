"""Resume tokens: the position of a scan and the state of the database that it read.

A token is opaque to clients: base64url of a msgpack list and a 4-byte checksum, so that a damaged token, or one of
another scan, is rejected.
"""

import base64
import hashlib

import msgpack

from shale.api.responses import to_msgpack
from shale.core.lazy_dataclass import dataclass
from shale.service.http.problems import Problem, bad_request

_CHECK_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanToken:
    """``snapshot`` is the id of the scanned snapshot, if any; ``last_key`` the last key that was sent, if any."""

    scan: bytes
    seq: int
    snapshot: str | None = None
    last_key: bytes | None = None


def encode_token(token: ScanToken) -> str:
    """Encode a token as text."""
    plain = to_msgpack([2, token.scan, token.seq, token.snapshot, token.last_key])
    return base64.urlsafe_b64encode(plain + _check(plain)).decode()


def decode_token(text: object) -> ScanToken:
    """Decode a token.

    Raises:
        Problem: the text is not a token (400).
    """
    try:
        data = base64.urlsafe_b64decode(text) if isinstance(text, str) else b""
        plain, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not plain or check != _check(plain):
            raise _invalid_token()
        fields = msgpack.unpackb(plain)
    except (ValueError, msgpack.UnpackException) as error:
        raise _invalid_token() from error
    # The first field is the version.  The checksum is not a signature, so the other fields may have any type.
    match fields:
        case [2, bytes(scan), int(seq), str() | None as snapshot, bytes() | None as last_key]:
            return ScanToken(scan=scan, seq=seq, snapshot=snapshot, last_key=last_key)
    raise _invalid_token()


def scan_fingerprint(start: bytes | None, stop: bytes | None, prefix: bytes | None, *, reverse: bool) -> bytes:
    """Return a hash of the range and direction of a scan."""
    return hashlib.blake2b(to_msgpack([start, stop, prefix, reverse]), digest_size=8).digest()


def _check(plain: bytes) -> bytes:
    return hashlib.blake2b(plain, digest_size=_CHECK_BYTES, person=b"shale.scan").digest()


def _invalid_token() -> Problem:
    return bad_request("resume: not a scan token")
