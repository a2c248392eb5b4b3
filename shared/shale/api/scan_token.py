"""Resume tokens: where a scan was, and in which state of the database.

A token is opaque to clients: base64url of a msgpack list and four bytes of a checksum, so that a damaged or invented
one is refused, and one of another scan as well.
"""

import base64
import hashlib
from dataclasses import dataclass

import msgpack

from shale.api.packing import as_msgpack
from shale.service.problems import Problem, bad_request

_CHECK_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanToken:
    """``snapshot`` is the one that the scan was given, ``behind`` the last key of what was sent, if anything was."""

    scan: bytes
    seq: int
    snapshot: str | None = None
    behind: bytes | None = None


def encode_token(token: ScanToken) -> str:
    """A token as text."""
    plain = as_msgpack([2, token.scan, token.seq, token.snapshot, token.behind])
    return base64.urlsafe_b64encode(plain + _check(plain)).decode()


def decode_token(text: object) -> ScanToken:
    """Read a token.

    Raises:
        Problem: it is none (400).
    """
    try:
        data = base64.urlsafe_b64decode(text) if isinstance(text, str) else b""
        plain, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not plain or check != _check(plain):
            raise _no_token()
        fields = msgpack.unpackb(plain)
    except (ValueError, msgpack.UnpackException) as error:
        raise _no_token() from error
    # The version is the first field.  The checksum is no secret: the rest may be anything.
    match fields:
        case [2, bytes(scan), int(seq), str() | None as snapshot, bytes() | None as behind]:
            return ScanToken(scan=scan, seq=seq, snapshot=snapshot, behind=behind)
    raise _no_token()


def scan_name(start: bytes | None, stop: bytes | None, prefix: bytes | None, *, reverse: bool) -> bytes:
    """What tells one scan from another: its range and direction."""
    return hashlib.blake2b(as_msgpack([start, stop, prefix, reverse]), digest_size=8).digest()


def _check(plain: bytes) -> bytes:
    return hashlib.blake2b(plain, digest_size=_CHECK_BYTES, person=b"shale.scan").digest()


def _no_token() -> Problem:
    return bad_request("resume: not a token of a scan")
