"""Which codec a name stands for."""

from shale.errors import InvalidRequestError
from shale.plugins import known_names
from shale_spark.codecs.codec import ValueCodec
from shale_spark.codecs.json_codec import JsonCodec
from shale_spark.codecs.plain import BinaryCodec, TextCodec
from shale_spark.codecs.row_codec import GROUP, AvroCodec, MsgpackCodec, UserCodec

BUILT_IN = ("binary", "utf8", "json", "msgpack", "avro")


def value_codec(name: str, *, avro_schema: str | None = None) -> ValueCodec:
    """The codec of this name: one of ``BUILT_IN``, a registered one, or ``module:attribute``.

    Args:
        name: as above.
        avro_schema: the record's schema as JSON, for ``avro``.

    Raises:
        InvalidRequestError: there is no such codec, or a schema is missing.
    """
    match name:
        case "binary":
            return BinaryCodec()
        case "utf8":
            return TextCodec()
        case "json":
            return JsonCodec()
        case "msgpack":
            return MsgpackCodec()
        case "avro":
            if avro_schema is None:
                raise InvalidRequestError("values of format avro need avro_schema: the record's schema as JSON")
            return AvroCodec(avro_schema)
    registered = known_names(GROUP)
    if ":" not in name and name not in registered:
        known = ", ".join((*BUILT_IN, *registered))
        raise InvalidRequestError(f"no value format is called {name!r}: use one of {known}, or module:attribute")
    return UserCodec(name)
