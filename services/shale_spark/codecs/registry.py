"""The codec for a name."""

from shale.errors import InvalidRequestError
from shale.plugins import known_names
from shale_spark.codecs.codec import ValueCodec
from shale_spark.codecs.json_codec import JsonValueCodec
from shale_spark.codecs.plain_codecs import BinaryValueCodec, TextValueCodec
from shale_spark.codecs.row_codecs import GROUP, AvroValueCodec, MsgpackValueCodec, UserValueCodec

BUILT_IN = ("binary", "utf8", "json", "msgpack", "avro")


def value_codec(name: str, *, avro_schema: str | None = None) -> ValueCodec:
    """Return the codec of this name: one of ``BUILT_IN``, a registered one, or ``module:attribute``.

    Args:
        name: as above.
        avro_schema: the record's schema as JSON, for ``avro``.

    Raises:
        InvalidRequestError: there is no such codec, or a schema is missing.
    """
    match name:
        case "binary":
            return BinaryValueCodec()
        case "utf8":
            return TextValueCodec()
        case "json":
            return JsonValueCodec()
        case "msgpack":
            return MsgpackValueCodec()
        case "avro":
            if avro_schema is None:
                raise InvalidRequestError("values of format avro need avro_schema: the record's schema as JSON")
            return AvroValueCodec(avro_schema)
    registered = known_names(GROUP)
    if ":" not in name and name not in registered:
        known = ", ".join((*BUILT_IN, *registered))
        raise InvalidRequestError(f"no value format is called {name!r}: use one of {known}, or module:attribute")
    return UserValueCodec(name)
