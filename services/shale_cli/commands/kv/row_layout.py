"""Which columns of a file are the key and the value of a row.

Without options a file has the columns ``key`` and ``value``.  ``--key`` and ``--value`` name other ones;
``--value-format`` makes one value of all columns but the key, and columns of a value.
"""

import base64
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.framework.output.writer import KeyEncoding, Output

KEY_BYTES_MAX = 65_535


class ValueFormat(StrEnum):
    """How columns are stored in a value."""

    JSON = "json"
    MSGPACK = "msgpack"
    ARROW_ROW = "arrow-row"


KeyColumn = Annotated[str | None, typer.Option("--key", help="The column of keys; default: key.")]
ValueColumn = Annotated[str | None, typer.Option("--value", help="The column of values; default: value.")]
ValueFormatOption = Annotated[
    ValueFormat | None,
    typer.Option(
        "--value-format",
        help="The value has all columns but the key: a JSON object, a msgpack map, or an Arrow IPC stream of one row.",
    ),
]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The options above.

    Raises:
        InvalidRequestError: ``--value`` and ``--value-format`` are both given.
    """

    key: str | None = None
    value: str | None = None
    value_format: ValueFormat | None = None

    def __post_init__(self) -> None:
        if self.value is not None and self.value_format is not None:
            raise InvalidRequestError("give either --value or --value-format, which makes a value of all other columns")

    @property
    def is_default(self) -> bool:
        """Whether no option is given."""
        return self == RowLayout()

    @property
    def key_name(self) -> str:
        """The column of keys."""
        return self.key or "key"

    @property
    def value_name(self) -> str:
        """The column of values, if it is one column."""
        return self.value or "value"

    def __str__(self) -> str:
        """Return the options as they are given."""
        given = {"--key": self.key_name, "--value": self.value_name}
        if self.value_format is not None:
            given = {"--key": self.key_name, "--value-format": self.value_format.value}
        return " ".join(f"{option} {value}" for option, value in given.items())

    def require(self, names: list[str], what: str) -> None:
        """Require that these columns have the key and the value, and each column once.

        Raises:
            InvalidRequestError: names the missing column and the columns that there are.
        """
        self.require_unique(names, what)
        wanted = [self.key_name] if self.value_format is not None else [self.key_name, self.value_name]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InvalidRequestError(
                f"{what}: there is no column {missing[0]!r}, only {', '.join(names) or 'none'}: "
                "give --key, and --value or --value-format"
            )

    def require_unique(self, names: list[str], what: str) -> None:
        """Require that no column that is read has the name of another one, whose fields would be lost.

        Raises:
            InvalidRequestError: names the column.
        """
        single = {self.key_name, self.value_name, "key_b64", "value_b64", "expire_ms", "expire_ts"}
        read = names if self.value_format is not None else [name for name in names if name in single]
        repeated = sorted({name for name in read if read.count(name) > 1})
        if repeated:
            raise InvalidRequestError(f"{what}: there are several columns {repeated[0]!r}: rename all but one")


class MalformedRow(InvalidRequestError):
    """A row of a file cannot be imported."""


def put_of(key: bytes | None, value: bytes | None, expire_ms: int | None = None) -> RowChange:
    """Return the put of a row.

    Raises:
        MalformedRow: the key is empty or too long, or one of them is null.
    """
    if key is None or value is None:
        raise MalformedRow("the key or value is null")
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise MalformedRow(f"key of {len(key)} bytes: must be between 1 and {KEY_BYTES_MAX}")
    return RowChange(key, value, expire_ms)


def encoder_of(value_format: ValueFormat) -> Callable[[Mapping[str, Any]], bytes]:
    """Return the function that makes a value of named fields.

    Raises:
        InvalidRequestError: pyarrow is not installed.
    """
    if value_format is ValueFormat.ARROW_ROW:
        from shale_cli.commands.kv.arrow_row import encode_row

        return encode_row
    if value_format is ValueFormat.MSGPACK:
        return _msgpack
    return to_json


def decoder_of(value_format: ValueFormat, *, keeps_types: bool = False) -> Callable[[bytes], Mapping[str, Any]]:
    """Return the function that makes named fields of a value; raises like ``encoder_of``.

    ``keeps_types``: the fields of an Arrow row are Arrow scalars.

    Its ``ValueError`` or ``InvalidRequestError`` tells that the value has another format.
    """
    if value_format is ValueFormat.ARROW_ROW:
        from shale_cli.commands.kv.arrow_row import decode_row, decode_scalars

        return decode_scalars if keeps_types else decode_row
    if value_format is ValueFormat.MSGPACK:
        import msgpack

        return lambda data: _mapping(msgpack.unpackb(data))
    import orjson

    return lambda data: _mapping(orjson.loads(data))


def to_bytes(output: Output, name: str, value: object) -> bytes:
    """Return a field as a key or value: text is in the key format, other values are JSON.

    Raises:
        InvalidRequestError: it is null, or text in another format.
    """
    if isinstance(value, str):
        return (
            value.encode("utf-8", "surrogateescape") if output.key_format is KeyEncoding.UTF8 else output.parse(value)
        )
    if isinstance(value, bytes):
        return value
    if value is None:
        raise InvalidRequestError(f"{name} is null or missing")
    return to_json(value)


def to_text(output: Output, what: str, data: bytes) -> str:
    """Return a key or value as text in the key format, from which ``to_bytes`` makes the same bytes.

    Raises:
        InvalidRequestError: the key format is UTF-8, and these bytes are not.
    """
    if output.key_format is not KeyEncoding.UTF8:
        return output.show(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequestError(
            f"{what} {output.show(data[:40])} is not UTF-8: give --key-format base64 or hex"
        ) from None


def to_json(value: object) -> bytes:
    """Return a value as JSON.

    Raises:
        InvalidRequestError: it is nested too deeply, or an object has names that are no texts.
    """
    import orjson

    try:
        # The copy has its size; the original keeps the kilobyte in which it was made as long as it lives.
        return memoryview(orjson.dumps(value, as_plain)).tobytes()
    except TypeError as error:
        raise InvalidRequestError(f"a value cannot be written as JSON: {error}") from error


def _msgpack(fields: Mapping[str, Any]) -> bytes:
    import msgpack

    return bytes(msgpack.packb(fields, default=as_plain) or b"")


def _mapping(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InvalidRequestError("it has no named fields")
    return found


def as_plain(value: object) -> object:
    """Return what a format cannot hold as text: bytes in base64, decimals and times as they are written."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
