"""Recognises files of another format than the one that was given, by their first bytes."""

from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from shale.errors import InvalidRequestError

UTF8_MARK = b"\xef\xbb\xbf"
ARROW_FILE = b"ARROW1"

_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip -c"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -dc"),
    b"BZh": ("bzip2", "bunzip2 -c"),
    b"\xfd7zXZ": ("xz", "xz -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
_TABLES = {b"PAR1": "parquet", ARROW_FILE: "arrow"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SEEN_BYTES = 64


def require(stream: BinaryIO, file: Path, format_: str) -> None:
    """Require that the first bytes of a file may be those of a format; skip a byte order mark of JSON lines.

    Raises:
        InvalidRequestError: tells what the file seems to be, and how it can be imported; the file is closed.
    """
    try:
        first = first_bytes(stream)
        _require_format(first, file, format_)
        if format_ == "ndjson" and first.startswith(UTF8_MARK):
            stream.read(len(UTF8_MARK))
    except OSError as error:
        stream.close()
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    except InvalidRequestError:
        stream.close()
        raise


def _require_format(first: bytes, file: Path, format_: str) -> None:
    for magic, (name, command) in _COMPRESSED.items():
        if first.startswith(magic):
            raise InvalidRequestError(
                f"{file}: it is compressed with {name}: {command} {file} | shale kv import - --format {_inner(file)}"
            )
    for magic, table in _TABLES.items():
        if first.startswith(magic) and format_ not in _TABLES.values():
            raise InvalidRequestError(f"{file}: it is not {format_}: give --format {table}")
    if format_ in _TABLES.values():
        return
    if first.startswith(_UTF16):
        raise InvalidRequestError(
            f"{file}: it is UTF-16: convert it to UTF-8, for example with iconv -f utf-16 -t utf-8"
        )
    if format_ == "ndjson":
        _require_lines(file, first.removeprefix(UTF8_MARK))


def first_bytes(stream: BinaryIO) -> bytes:
    """Return bytes at the beginning of a stream without reading them; none if it cannot tell."""
    return stream.peek(_SEEN_BYTES)[:_SEEN_BYTES] if isinstance(stream, BufferedReader) else b""


def _require_lines(file: Path, first: bytes) -> None:
    if first.lstrip().startswith(b"["):
        raise InvalidRequestError(
            f"{file}, line 1: not an object: a JSON array has no lines; jq -c '.[]' {file} prints its objects as lines"
        )
    if file.suffix.lower() == ".tsv":
        raise InvalidRequestError(f"{file}: columns that tabs separate cannot be imported: separate them with commas")


def _inner(file: Path) -> str:
    """Return the format of a compressed file, from its name without the last suffix."""
    inner = Path(file.stem).suffix.lower()
    return "csv" if inner == ".csv" else "ndjson"
